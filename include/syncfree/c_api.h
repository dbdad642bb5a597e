/* The C interface of libsyncfree_core: plain data, pointers and status codes, no exception and no
 * C++ type, so that any compiler and any language can call it. For C++ programs there are the
 * headers beside this one.
 *
 * Every function that can fail returns a syncfree_status_code. All arguments are checked before
 * anything is launched or written. Functions may be called from any thread.
 */
#ifndef SYNCFREE_C_API_H
#define SYNCFREE_C_API_H

#include <stddef.h>
#include <stdint.h>

#include "syncfree/version.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYNCFREE_API __attribute__((visibility("default")))
#define SYNCFREE_MAX_RANK 8

/* cudaStream_t and CUstream, without the toolkit's headers. */
typedef struct CUstream_st* syncfree_stream;

typedef enum syncfree_status_code {
  SYNCFREE_OK = 0,
  SYNCFREE_INVALID_ARGUMENT = 1, /* an option out of range, a null pointer, misaligned memory, more
                                    names or open regions than a timer has room for */
  SYNCFREE_WRONG_SHAPE = 2,
  SYNCFREE_WRONG_DTYPE = 3,
  SYNCFREE_WRONG_DEVICE = 4,  /* tensors on different devices, or no valid device */
  SYNCFREE_NEEDS_SCRATCH = 5, /* too little was given, or none where the library can't take it */
  SYNCFREE_BAD_LABEL = 6,     /* found on the CPU; on CUDA the result is NaN */
  SYNCFREE_WITHOUT_CUDA = 7,  /* CUDA tensors, but a library built without CUDA */
  SYNCFREE_CUDA_ERROR = 8,    /* no driver, no such device, or a failed launch */
  SYNCFREE_OUT_OF_MEMORY = 9,
  SYNCFREE_INTERNAL_ERROR = 10 /* also an exception that `parallel_for` threw */
} syncfree_status_code;

typedef enum syncfree_dtype {
  SYNCFREE_FLOAT32 = 0,
  SYNCFREE_FLOAT64 = 1,
  SYNCFREE_FLOAT16 = 2,
  SYNCFREE_BFLOAT16 = 3,
  SYNCFREE_UINT8 = 4,
  SYNCFREE_INT8 = 5,
  SYNCFREE_INT16 = 6,
  SYNCFREE_INT32 = 7,
  SYNCFREE_INT64 = 8,
  SYNCFREE_BOOL = 9
} syncfree_dtype;

typedef enum syncfree_device_type { SYNCFREE_CPU = 0, SYNCFREE_CUDA = 1 } syncfree_device_type;

/* Sizes and strides count elements; the product of the sizes that are not 0 is below 2^63. Operands
 * are only read and may have any strides, also zero and negative ones; results are written and are
 * dense in row-major order. */
typedef struct syncfree_tensor {
  void* data;
  int64_t size[SYNCFREE_MAX_RANK];
  int64_t stride[SYNCFREE_MAX_RANK];
  int32_t rank;
  int32_t dtype;        /* syncfree_dtype */
  int32_t device_type;  /* syncfree_device_type */
  int32_t device_index; /* of the CUDA device, as cudaSetDevice counts */
} syncfree_tensor;

/* Splits [begin, end) into ranges of at least `grain` and calls body(b, e, body_context) on each,
 * on as many threads as it likes; returns when all are done. */
typedef void (*syncfree_parallel_for)(int64_t begin, int64_t end, int64_t grain,
                                      void (*body)(int64_t begin, int64_t end, void* body_context),
                                      void* body_context);

/* Where and with what a call runs. All zero: the default stream, the calling thread, and scratch
 * memory of the library's own. */
typedef struct syncfree_launch {
  syncfree_stream stream; /* CUDA: the work is queued there and nothing waits for it */
  void* scratch;          /* on the operands' device, used by one call at a time; null: library's */
  size_t scratch_bytes;
  size_t* scratch_needed;             /* if not null: the call only writes here how much it wants */
  syncfree_parallel_for parallel_for; /* CPU; null: the calling thread alone */
} syncfree_launch;

typedef enum syncfree_range_source {
  SYNCFREE_RANGE_VALUE = 0,    /* `value` */
  SYNCFREE_RANGE_INTERVAL = 1, /* both images are clamped to [low, high], which is the range */
  SYNCFREE_RANGE_DATA = 2      /* the larger of the two tensors' max - min, found on the device */
} syncfree_range_source;

typedef struct syncfree_range {
  double value;
  double low;
  double high;
  int32_t source; /* syncfree_range_source */
} syncfree_range;

typedef enum syncfree_reduction {
  SYNCFREE_NO_REDUCTION = 0,
  SYNCFREE_MEAN = 1,
  SYNCFREE_SUM = 2
} syncfree_reduction;

typedef struct syncfree_psnr_options {
  syncfree_range range; /* VALUE or INTERVAL */
  double base;          /* of the logarithm; 10 gives decibels */
  int32_t kept;         /* leading dimensions with a value each; the others are averaged over */
  int32_t reduction;    /* of those values */
} syncfree_psnr_options;

/* Entries for the image's spatial axes in their order: height, width, or depth, height, width. What
 * is not used is not checked. With a Gaussian, kernel_size still sets the padding of a volume's
 * last axis, unless `valid`, and by its first two entries the least size of images for MS-SSIM, as
 * in TorchMetrics. */
typedef struct syncfree_window {
  double sigma[3];        /* below 1e6; of a Gaussian of 2 * int(3.5 * sigma + 0.5) + 1 taps */
  int32_t kernel_size[3]; /* of a uniform window; odd */
  int32_t gaussian;       /* 0: uniform */
  int32_t valid;          /* 1: only windows inside the image; 0: mirrored borders */
} syncfree_window;

typedef struct syncfree_ssim_options {
  syncfree_range range;
  syncfree_window window;
  double k1;
  double k2;
  int32_t reduction;
} syncfree_ssim_options;

typedef enum syncfree_normalize {
  SYNCFREE_NO_NORMALIZATION = 0,
  SYNCFREE_RELU = 1,  /* max(x, 0) */
  SYNCFREE_SIMPLE = 2 /* (x + 1) / 2 */
} syncfree_normalize;

typedef struct syncfree_ms_ssim_options {
  syncfree_range range;
  syncfree_window window; /* `valid` must be 0 */
  double k1;
  double k2;
  double betas[32]; /* exponents, finest scale first */
  int32_t scales;   /* how many of them there are */
  int32_t normalize;
  int32_t reduction;
} syncfree_ms_ssim_options;

typedef enum syncfree_task {
  SYNCFREE_BINARY = 0,
  SYNCFREE_MULTICLASS = 1,
  SYNCFREE_MULTILABEL = 2
} syncfree_task;

typedef enum syncfree_average {
  SYNCFREE_MICRO = 0,
  SYNCFREE_MACRO = 1,
  SYNCFREE_WEIGHTED = 2,
  SYNCFREE_NO_AVERAGE = 3
} syncfree_average;

typedef struct syncfree_accuracy_options {
  double threshold;     /* BINARY and MULTILABEL scores */
  int64_t num_classes;  /* or labels; may be 0 (unknown) with MULTICLASS, MICRO and top_k 1 */
  int64_t ignore_index; /* target value left out, if has_ignore_index */
  int32_t task;
  int32_t average;
  int32_t top_k;      /* MULTICLASS */
  int32_t samplewise; /* 1: a value for each sample */
  int32_t has_ignore_index;
  int32_t validate; /* 1: bad labels make the result NaN; 0: they count as wrong or are left out */
} syncfree_accuracy_options;

/* The message of the last call on this thread that did not return SYNCFREE_OK: what was expected
 * and what was passed. Valid until the next call on this thread; never null. */
SYNCFREE_API const char* syncfree_last_message(void);

/* The version of the loaded library, such as "0.1.0"; it may be newer than the headers. */
SYNCFREE_API const char* syncfree_version(void);

/* 1 if the library takes CUDA tensors, 0 if it was built without CUDA. */
SYNCFREE_API int32_t syncfree_has_cuda(void);

/* `value`: one element, or the kept sizes without a reduction; any floating dtype. */
SYNCFREE_API syncfree_status_code syncfree_psnr(const syncfree_tensor* preds,
                                                const syncfree_tensor* target,
                                                const syncfree_tensor* value,
                                                const syncfree_psnr_options* options,
                                                const syncfree_launch* launch);

/* Images (B, C, H, W) or (B, C, D, H, W). `value`: one element, or (B) without a reduction. `map`
 * and `contrast` may be null; both have the dtype of `value`. `map` has the sizes of the images,
 * less the window's size - 1 on each axis if `valid`; under a Gaussian that is not, a volume's last
 * axis has size + kernel_size - taps. `contrast` is (B). */
SYNCFREE_API syncfree_status_code syncfree_ssim(
    const syncfree_tensor* preds, const syncfree_tensor* target, const syncfree_tensor* value,
    const syncfree_tensor* map, const syncfree_tensor* contrast,
    const syncfree_ssim_options* options, const syncfree_launch* launch);

SYNCFREE_API syncfree_status_code syncfree_ms_ssim(const syncfree_tensor* preds,
                                                   const syncfree_tensor* target,
                                                   const syncfree_tensor* value,
                                                   const syncfree_ms_ssim_options* options,
                                                   const syncfree_launch* launch);

/* PSNR, SSIM and mean absolute error from one pass. `psnr` and `mae` have the same dtype. SUM, a
 * range of DATA and `valid` windows are refused; with MEAN the errors are pooled before the
 * logarithm. */
SYNCFREE_API syncfree_status_code syncfree_image_quality(
    const syncfree_tensor* preds, const syncfree_tensor* target, const syncfree_tensor* psnr,
    const syncfree_tensor* ssim, const syncfree_tensor* mae, const syncfree_ssim_options* options,
    const syncfree_launch* launch);

/* `value` is float32: one element, one for each class (NO_AVERAGE), for each sample (samplewise),
 * or (N, classes). `bad_labels`, which may be null, is one int64 on the same device; it grows by
 * the number of bad labels. */
SYNCFREE_API syncfree_status_code syncfree_accuracy(
    const syncfree_tensor* preds, const syncfree_tensor* target, const syncfree_tensor* value,
    int64_t* bad_labels, const syncfree_accuracy_options* options, const syncfree_launch* launch);

/* Times regions with events and never waits for them; a region is the work of a stream between
 * begin and end. Opaque. */
typedef struct syncfree_timer syncfree_timer;
typedef struct syncfree_region syncfree_region;

typedef struct syncfree_timer_options {
  int64_t regions_in_flight; /* if there would be more, the oldest is dropped and counted */
  int64_t history;           /* samples kept for each name */
  int32_t device_type;       /* CPU: times are the host's */
} syncfree_timer_options;

/* Microseconds; NaN where nothing is known. */
typedef struct syncfree_region_summary {
  const char* name; /* lives as long as the timer */
  int64_t count;
  double total_us;
  double least_us;
  double median_us; /* of the samples kept, like all that follows */
  double host_median_us;
  double gap_median_us;
  double launch_bound_share; /* without replays of graphs; 0 if these are more than the others */
  int32_t host_clock;
} syncfree_region_summary;

/* If it fails, `timer` becomes null. */
SYNCFREE_API syncfree_status_code syncfree_timer_create(const syncfree_timer_options* options,
                                                        syncfree_timer** timer);
/* Every region must have ended. */
SYNCFREE_API void syncfree_timer_destroy(syncfree_timer* timer);

/* `region` becomes null if it cannot be timed, which is no error; a null region may be ended. */
SYNCFREE_API syncfree_status_code syncfree_timer_begin(syncfree_timer* timer, const char* name,
                                                       int32_t device_index, syncfree_stream stream,
                                                       syncfree_region** region);
SYNCFREE_API syncfree_status_code syncfree_timer_end(syncfree_timer* timer,
                                                     syncfree_region* region);

/* Turns regions that the GPU has passed into samples and does not wait; `wait` first waits for all
 * that have ended. */
SYNCFREE_API syncfree_status_code syncfree_timer_poll(syncfree_timer* timer);
SYNCFREE_API syncfree_status_code syncfree_timer_wait(syncfree_timer* timer);

/* Summarizes one name; `index` counts names in the order of their first use. Behind the last one
 * the summary's name is null. */
SYNCFREE_API syncfree_status_code syncfree_timer_summary(syncfree_timer* timer, int64_t index,
                                                         syncfree_region_summary* summary);

/* Regions without a sample: dropped, skipped or failed. */
SYNCFREE_API int64_t syncfree_timer_untimed(syncfree_timer* timer);

/* Writes the name of the processor or the GPU, cut to `size` bytes with its terminating null. */
SYNCFREE_API syncfree_status_code syncfree_device_name(int32_t device_type, int32_t device_index,
                                                       char* name, int64_t size);

#define SYNCFREE_LONGEST_GATE_US 100000.0

/* Times one call after the other on a CUDA stream, as it is or behind a gate: a kernel that spins
 * for a bounded time while the host queues the call. For one thread at a time. Opaque. */
typedef struct syncfree_probe syncfree_probe;

typedef struct syncfree_probe_times {
  double us;         /* between the events around the call */
  double megahertz;  /* of one multiprocessor during a gated call; NaN if unknown */
  int32_t gate_held; /* 1: it was shut until the call was queued, or there was none */
} syncfree_probe_times;

/* The stream must not be capturing a graph. If it fails, `probe` becomes null. */
SYNCFREE_API syncfree_status_code syncfree_probe_create(int32_t device_index,
                                                        syncfree_stream stream,
                                                        syncfree_probe** probe);
/* Allowed at any time, also between begin and end: a gate opens by itself. */
SYNCFREE_API void syncfree_probe_destroy(syncfree_probe* probe);

/* Shuts a gate for `gate_us` microseconds, unless that is 0, and begins to time. */
SYNCFREE_API syncfree_status_code syncfree_probe_begin(syncfree_probe* probe, double gate_us);

/* Follows the call that is timed. Waits until the stream has done all its work. */
SYNCFREE_API syncfree_status_code syncfree_probe_end(syncfree_probe* probe,
                                                     syncfree_probe_times* times);

#ifdef __cplusplus
}
#endif

#endif
