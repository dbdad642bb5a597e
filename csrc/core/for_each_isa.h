// Compiles the kernel header SYNCFREE_KERNEL once for each instruction set, in a namespace of its
// own.
//
// Included once per .cpp, after every other header: standard headers must be seen outside the
// target regions, or the linker might keep an AVX-512 copy of one of their inline functions for all
// instruction sets. Inside, SYNCFREE_VECTOR_BYTES is the vector width and
// `syncfree::{baseline,avx2,avx512}` the namespace of the header's definitions. The header has no
// include guard and includes nothing.
#ifndef SYNCFREE_KERNEL
#error "define SYNCFREE_KERNEL to the kernel header before including core/for_each_isa.h"
#endif

#define SYNCFREE_VECTOR_BYTES 16
namespace syncfree::baseline {
#include SYNCFREE_KERNEL
}  // namespace syncfree::baseline
#undef SYNCFREE_VECTOR_BYTES

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define SYNCFREE_VECTOR_BYTES 32
namespace syncfree::avx2 {
#include SYNCFREE_KERNEL
}  // namespace syncfree::avx2
#undef SYNCFREE_VECTOR_BYTES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define SYNCFREE_VECTOR_BYTES 64
namespace syncfree::avx512 {
#include SYNCFREE_KERNEL
}  // namespace syncfree::avx512
#undef SYNCFREE_VECTOR_BYTES
#pragma GCC pop_options

#else

namespace syncfree {
namespace avx2 = baseline;
namespace avx512 = baseline;
}  // namespace syncfree

#endif

#undef SYNCFREE_KERNEL
