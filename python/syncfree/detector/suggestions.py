"""What to write instead of a line that makes the host wait."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DEFERRED = "`syncfree.deferred(tensor)`"

_LOGGING = re.compile(
    r"\bprint\(|\blog(s|ger|ging)?\b|\blog_|\.log\(|add_scalar|wandb|mlflow|set_postfix|"
    r"set_description|tqdm|writer\.|\.append\(|\bf['\"]|^\s*[\w.]+\[[^=]+\] = |\+= \[",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"\bif\b(.+)\belse\b")
_SUMS = re.compile(r"\+=|\.update\([\w.\[\]()]+\.item\(")
_EXTREMES = re.compile(r"(?<![.\w])(max|min)\(")
_BRANCH = re.compile(r"^\s*(if|elif|while|assert)\b|\bif\b.+\belse\b|\b(and|or|not)\b")

LOGGED = (
    f"Keep the tensor and read it when it has arrived: {_DEFERRED} copies it without a wait and "
    "prints the newest value that is there; or append `tensor.detach()` to a list and read the "
    "list once an epoch."
)
SUM = (
    "Add it up on the GPU, without its graph, as in `total += loss.detach()`. Read the sum once an "
    f"epoch, or show it with {_DEFERRED}."
)
SCALAR = (
    "Go on with the 0-d tensor: arithmetic, comparisons and torch.where take it as it is. Where "
    f"Python must have the number, {_DEFERRED} brings it without a wait, or read it once an epoch."
)
POSITION = (
    "Python makes a number of a 0-d tensor in brackets. With a dimension it stays on the GPU: "
    "`x[i.reshape(1)]` for `x[i]`. For a slice `x[:n]` keep the shape and mask the rest: "
    "`torch.where(torch.arange(len(x), device=x.device) < n, x, 0)`."
)
LIST = (
    "Go on with the tensor: arithmetic, indexing and torch.where need no list. Where Python must "
    f"have the numbers, {_DEFERRED} brings them without a wait, or read them once an epoch."
)
BRANCH = (
    "Decide on the device: `torch.where(condition, a, b)`, or multiply by the condition. Where "
    f"Python must branch, look at {_DEFERRED} of an earlier step, or do it once an epoch."
)
EXTREME = (
    "Python's `max` and `min` compare on the host. `torch.maximum(a, b)`, `torch.minimum(a, b)` "
    "and `torch.stack(values).amax()` do it on the GPU."
)
ASSERT = (
    "`torch._assert_async(condition)` checks on the GPU, without a wait: where it fails, a later "
    "call raises. Or check once an epoch."
)
MASK = (
    "Keep the full shape: `torch.where(mask, x, 0)` or `x * mask`, and divide by `mask.sum()`; for "
    "assignments `x.masked_fill_(mask, value)`; with a known bound `torch.nonzero_static(mask, "
    "size=n)`."
)
FILL = (
    "torch reads the value back to fill with it. `torch.where(mask, value, x)` takes it from the "
    "GPU, and so does `x[index] = value` in the place of `index_fill`."
)
SEGMENTS = "Pass `unsafe=True` to segment_reduce, so that it does not check the lengths."
NONZERO = (
    "The number of results decides a shape. Keep the mask and use `torch.where(mask, a, b)`, or, "
    "with a known bound, `torch.nonzero_static(x, size=n)`."
)
UNIQUE = (
    "The number of results decides a shape. Sort and compare neighbors on the device, count into "
    "a tensor of fixed size (`zeros.scatter_add_(0, x, ones)`), or do it once outside of the loop."
)
BINCOUNT = (
    "bincount reads its largest value. Count into a tensor of fixed size: "
    "`torch.zeros(n, dtype=torch.long, device=x.device).scatter_add_(0, x, torch.ones_like(x))`; "
    "for accuracies use syncfree.classification, and F1, precision and recall beside one in a "
    "`syncfree.MetricCollection`, which has its counts if `average`, `top_k` and `ignore_index` "
    "are the same."
)
HISTC = (
    "Pass `min=` and `max=` to histc, so that it need not read the least and the greatest value."
)
REPEAT = "Pass `output_size=` to repeat_interleave, so that it need not add up the repeats."
ONE_HOT = "Pass `num_classes=`; without it one_hot reads the largest label."
READ_BACK = (
    f"Stay on the device, or read back with {_DEFERRED}: a copy to pinned memory on the current "
    "stream, and `.value()` when you need it."
)
CHECKPOINT = (
    "A checkpoint has to wait, as it writes what the GPU computed. Say that it is meant: "
    '`# sync-ok: checkpoint` on the line, or `with syncfree.allow_sync("checkpoint")` around it.'
)
UPLOAD = (
    "Copy from pinned memory: `tensor.pin_memory().to(device, non_blocking=True)`, or "
    "`DataLoader(..., pin_memory=True)` with `batch.to(device, non_blocking=True)`."
)
SET_UP = (
    "Weights and data have to get to the GPU once: nothing to do where this runs before the loop. "
    "Inside of it copy from pinned memory, `batch.to(device, non_blocking=True)` with "
    "`DataLoader(..., pin_memory=True)`."
)
UPLOAD_BY_TORCH = (
    "torch keeps a value on the host here and copies it each time. Look for an option that has it "
    "on the GPU, such as `capturable=True` of an optimizer, or call it more rarely."
)
NON_BLOCKING = (
    "The source is pinned, so `non_blocking=True` is all that is missing: torch waits for the "
    "stream after every other copy."
)
NEW_TENSOR = (
    "Make it on the device: `torch.full`, `torch.arange` or another factory with `device=`, once "
    "and outside of the loop; `torch.tensor(data, device=...)` copies from pageable memory."
)
SYNCHRONIZE = (
    "Take it out: work of one stream is in order anyway. Between streams use "
    "`stream.wait_stream(other)` or `stream.wait_event(event)`; for timing record CUDA events and "
    "read them once `event.query()` says so."
)
POLL = (
    "A loop on `query()` is a wait. Do other work and look once a step, or use "
    "`stream.wait_event(event)`."
)
PRINT = (
    "Printing a tensor reads it. Print "
    f"{_DEFERRED}, which shows the newest value that has arrived, or its shape."
)
CLIP = (
    "`clip_grad_norm_(..., error_if_nonfinite=False)` does not wait (error_if_nonfinite=True "
    "does); keep the norm that it returns as a tensor."
)
SCALER = (
    "GradScaler asks the device whether gradients were infinite. An optimizer with `fused=True` "
    "decides on the device; bfloat16 needs no scaler."
)
DISTRIBUTION = (
    "torch.distributions checks values on the host. Pass `validate_args=False`, or say "
    "`torch.distributions.Distribution.set_default_validate_args(False)` once."
)
CAUSAL = (
    "Without `is_causal=` torch compares the mask with a causal one on the host: pass "
    "`is_causal=True` or `False` along with the mask (`tgt_is_causal=` of a decoder)."
)
PADDING = (
    "An encoder in evaluation packs what is not padded. Make it with `enable_nested_tensor=False`."
)
READER = (
    "torch needs the value on the host itself here. Look for an option that spares it, or call it "
    "more rarely; what only shows the result can wait for it. If it is meant: `# sync-ok: reason`."
)
INDEX = (
    "The index is on the host, and every use copies it, also that of a list, as in `x[:, [-1]]`: "
    "a slice, `x[:, -1:]`, needs none. Make it on the device, as in `torch.randperm(n, "
    "device=x.device)`, or copy it there once: `index.pin_memory().to(device, non_blocking=True)`."
)
ALLOCATOR = (
    "Freeing or reserving device memory may wait for all of it. Take `torch.cuda.empty_cache()` "
    "out of the loop; let torch's allocator keep the memory."
)
BARRIER = (
    "A barrier blocks the host. Collectives on one communicator are in order anyway; take it out "
    "of the loop."
)
PINNING = "Pin once, outside of the loop, and copy into the pinned tensor: `pinned.copy_(source)`."
VALUE = (
    "`.value()` waits for a read-back that is under way. Ask `.ready()` first, or take "
    "`.latest()`, the newest value that has arrived."
)
LOADING = (
    'What is loaded decides what the host does next. `torch.load` with `map_location="cpu"` lets '
    "it look without a wait; where a wait is meant, say so: `# sync-ok: checkpoint`."
)
IMAGE_METRIC = (
    "This line is TorchMetrics' own. `syncfree.image` has the class of the same name, with its "
    "arguments and answers, which never waits; `syncfree.functional.image` has the functions."
)
LABEL_METRIC = (
    "This line is TorchMetrics' own. For accuracies `syncfree.classification` has the same class, "
    "which never waits; its other metrics of labels go on waiting there."
)
AGGREGATOR = (
    'This line is TorchMetrics\' own and looks for NaN. With `nan_strategy="disable"` the metric '
    "does not look, and does not wait."
)
OTHER = (
    "Look whether the result is needed on the host now; if not, keep it on the device or read it "
    f"later through {_DEFERRED}. If the wait is meant: `# sync-ok: reason`."
)

# Chosen by the file that waits, where only another import or option helps.
_BY_METRIC = [
    (re.compile(rf"torchmetrics[\\/](functional[\\/])?{file}\.py$"), text)
    for file, text in (
        (r"image[\\/](psnr|ssim)", IMAGE_METRIC),
        (r"classification[\\/](accuracy|stat_scores)", LABEL_METRIC),
        ("aggregation", AGGREGATOR),
    )
]

# Chosen by the function of torch's own Python code that waits: the text of the user's line does not
# say what is read there.
_BY_READER = [
    (r"[\\/]distributions[\\/]", DISTRIBUTION),
    (r"_detect_is_causal_mask", CAUSAL),
    (r"grad_scaler\.py:(?!.*get_scale)", SCALER),
    (r"clip_grad", CLIP),
    (r"", READER),
]

# The first pattern that is found in an operator or api decides, so the most specific come first.
_BY_NAME = [
    (r"bincount", BINCOUNT),
    (r"histc", HISTC),
    (r"repeat_interleave", REPEAT),
    (r"one_hot", ONE_HOT),
    (r"unique", UNIQUE),
    (r"_nested_tensor_from_mask", PADDING),
    (r"masked_fill|index_fill", FILL),
    (r"segment_reduce", SEGMENTS),
    (r"masked_select|boolean|bool.*index|mask.*index", MASK),
    (r"(?<!is_)nonzero|argwhere", NONZERO),
    (r"clip_grad", CLIP),
    (r"scaler|found_inf", SCALER),
    (r"barrier", BARRIER),
    (r"query", POLL),
    (r"pin_memory|HostAlloc|HostRegister|HostUnregister|FreeHost", PINNING),
    (r"empty_cache|cuMem(Free|Alloc|Unmap|Release|Pool)|cudaFree|cudaMalloc", ALLOCATOR),
    (r"__repr__|__str__|__format__|\bprint\b|\bformat\b|\brepr\b", PRINT),
    (r"__bool__|\bbool\b|is_nonzero|aten::equal|allclose|Tensor\.equal|torch\.equal", BRANCH),
]
# These wait for a mask, whose elements are counted, and for the copy of an index to the device.
_INDEXING = re.compile(r"aten::_?index(_put)?(_impl)?_?$")
_READS = re.compile(
    r"\bitem\b|_local_scalar_dense|__float__|__int__|__index__|__complex__|\bfloat\b|\bint\b|"
    r"(?<!aten::)\bindex\b|tolist"
)
_COPIES = re.compile(r"\bcpu\b|numpy|__array__|_to_copy|copy_|Memcpy|\.to\b|\bto\b")
_NEW_TENSOR = re.compile(r"(?<![\w.])(torch\.)?(tensor|as_tensor)\(|\.new(_tensor)?\(")
_COMMENT = re.compile(r"(^|\s)#\s.*$", re.MULTILINE)
_CHECKPOINT = re.compile(r"\btorch\.save\(|\bsave_(file|checkpoint)\(")
_LOADS = re.compile(r"\bload_(state_dict|checkpoint)\(")
_ASSERT = re.compile(r"\s*assert\b")
# Brackets that index something and have a name inside.
_BRACKETS = re.compile(r"(?<=[\w)\]])\[(?=[^\[\]]*[A-Za-z_])[^\[\]'\"]*\]")
_WAITS = re.compile(r"synchronize", re.IGNORECASE)
# Calls in which torch itself reads a value: the text of the line does not say what is read.
_CLIPS = re.compile(r"\bclip_grad_norm_?\(")
_SCALES = re.compile(r"scaler\.(step|unscale_|update)\(", re.IGNORECASE)
_READS_ITSELF = re.compile(r"\.(item|tolist)\(|\b(float|int|bool|print)\(")

# For waits in the driver or in torch's debug mode, whose api says nothing of the user's call.
_BY_SOURCE = [
    (r"\.value\(\)", VALUE),
    (r"\bbincount\(", BINCOUNT),
    (r"\bhistc\(", HISTC),
    (r"\brepeat_interleave\(", REPEAT),
    (r"\bone_hot\(", ONE_HOT),
    (r"\bunique(_consecutive)?\(", UNIQUE),
    (r"\bmasked_select\(", MASK),
    (r"\b(nonzero|argwhere)\(|torch\.where\([^,()]*\)", NONZERO),
    (_CLIPS.pattern, CLIP),
    (f"(?i:{_SCALES.pattern})", SCALER),
    (r"\bbarrier\(", BARRIER),
    # Comes before `empty_cache`: the driver calls of the allocator are in `_BY_NAME`, but it also
    # waits in functions of this name.
    (r"\bsynchronize\(", SYNCHRONIZE),
    (r"\bempty_cache\(", ALLOCATOR),
    (r"\.(cpu|numpy)\(", READ_BACK),
    (_NEW_TENSOR.pattern, NEW_TENSOR),
    (r"\.(cuda|to)\(", UPLOAD),
]


def suggest(
    *,
    api: str,
    source: str = "",
    file: str = "",
    op_stack: Sequence[str] = (),
    direction: str | None = None,
    host_memory: str | None = None,
    reader: str = "",
    statement: str = "",
    one_time: bool = False,
) -> str:
    """What to write instead, in a sentence or two.

    Args:
        api: The call that waited.
        source: The text of the line that waits; it tells a logging line from a branch.
        file: The file of that line: in a metric that syncfree has too, only another import helps.
        op_stack: Operators of torch, innermost first.
        direction: ``"d2h"`` or ``"h2d"`` for a copy.
        host_memory: ``"pageable"`` or ``"pinned"`` for a copy.
        reader: The function of torch's own Python code that waits, as ``file:function``.
        statement: The whole statement, if it has several lines.
        one_time: Whether the wait is one that a program has only once, as far as is known.

    Example:
        >>> from syncfree.detector.suggestions import suggest
        >>> suggest(api="aten::repeat_interleave")
        'Pass `output_size=` to repeat_interleave, so that it need not add up the repeats.'
    """
    names = [api, *op_stack]
    source = _COMMENT.sub("", source)
    place = next((text for pattern, text in _BY_METRIC if pattern.search(file)), None)
    if _LOADS.search(source) and direction != "h2d":
        place = LOADING
    known = place or _inside_torch(names, source) or _by_name(names, direction)
    if reader and direction == "h2d":
        known = None if one_time else UPLOAD_BY_TORCH
    elif reader and not place and known is not PADDING and not _reads_as_well(api, source):
        known = next(text for pattern, text in _BY_READER if re.search(pattern, reader))
    if known is not None:
        return _of_a_branch(source, statement) if known is BRANCH else known
    if any(_READS.search(name) for name in names):
        return _of_a_read(source, statement)
    if direction == "h2d":
        return _of_an_upload(names, source, host_memory, one_time)
    if direction == "d2h" and ("UntypedStorage" in api or _CHECKPOINT.search(source)):
        return CHECKPOINT
    if direction == "d2h" and any(_COPIES.search(name) for name in names):
        # Only the text of the line tells the driver's copy for a scalar read from other copies.
        reads = re.search(r"\.item\(|\.tolist\(", source)
        return _of_a_read(source, statement) if reads else READ_BACK
    return _by_source(api, source)


def _reads_as_well(api: str, source: str) -> bool:
    """Whether the user's line itself may have read a value in the same way."""
    name = api.rpartition(".")[2].strip("_")
    branches = name == "bool" and _BRANCH.match(source)
    return bool(branches or re.search(rf"\b{re.escape(name)}\(", source))


def _of_an_upload(
    names: Sequence[str], source: str, host_memory: str | None, one_time: bool
) -> str:
    if any(_INDEXING.match(name) for name in names):
        return INDEX
    if one_time and host_memory != "pinned":
        return SET_UP
    if _NEW_TENSOR.search(source):
        return NEW_TENSOR
    return NON_BLOCKING if host_memory == "pinned" else UPLOAD


def _inside_torch(names: Sequence[str], source: str) -> str | None:
    reads = any(_READS.search(name) or "__bool__" in name for name in names)
    if not reads or _READS_ITSELF.search(source):
        return None
    if _SCALES.search(source):
        return SCALER
    return CLIP if _CLIPS.search(source) and not _BRANCH.search(source) else None


def _by_name(names: Sequence[str], direction: str | None) -> str | None:
    indexing = [name for name in names if _INDEXING.match(name)]
    counts_mask = "aten::nonzero" in names or names[0] in indexing
    if indexing and counts_mask and direction != "h2d":
        return MASK
    for pattern, text in _BY_NAME:
        if any(re.search(pattern, name, re.IGNORECASE) for name in names):
            return text
    return None


def _of_a_branch(source: str, statement: str) -> str:
    if _ASSERT.match(statement or source):
        return ASSERT
    return EXTREME if _EXTREMES.search(source) and not _BRANCH.match(source) else BRANCH


def _of_a_read(source: str, statement: str = "") -> str:
    if _LOGGING.search(source) or _LOGGING.search(_COMMENT.sub("", statement)):
        return LOGGED
    condition = _CONDITION.search(source)
    if condition is not None and not _READS_ITSELF.search(condition[1]):
        # `x.item() if torch.is_tensor(x) else x`: the condition does not read the value.
        source = source[: condition.start()] + source[condition.end() :]
    if _ASSERT.match(statement or source):
        return ASSERT
    if _BRANCH.search(source):
        return BRANCH
    if _SUMS.search(source):
        return SUM
    if re.search(r"\.tolist\(", source):
        return LIST
    return POSITION if _is_position(source) else SCALAR


def _is_position(source: str) -> bool:
    """Whether the value is read as an index in brackets, and nothing is read outside of them."""
    beside, found = _BRACKETS.subn("[]", source)
    return bool(found) and not _READS_ITSELF.search(beside)


def _by_source(api: str, source: str) -> str:
    if _CHECKPOINT.search(source):
        return CHECKPOINT
    # If the line calls the api by its own name, the other calls in the line did not wait.
    own = f"{api.rpartition('.')[2]}("
    is_there = re.search(rf"\b{re.escape(own)}", source)
    for pattern, text in _BY_SOURCE:
        if any(not is_there or own in found[0] for found in re.finditer(pattern, source)):
            return text
    if re.search(r"\.(item|tolist)\(|\b(float|int|bool)\(", source):
        return _of_a_read(source)
    if _COPIES.search(api):
        return READ_BACK
    if _WAITS.search(api) and not api.startswith(("cu", "cuda")):
        return SYNCHRONIZE
    return BRANCH if re.match(r"\s*(if|elif|while|assert)\b", source) else OTHER
