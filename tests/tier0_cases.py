"""Small programs for tier 0. A line that waits on a GPU says so: `# sync: api`, `# conditional: api`.

Lines without such a comment must not be reported. The verdicts are those of torch's CUDA code.
"""

# ruff: noqa: B015, E501, PLR0124
# fmt: off

from __future__ import annotations

import copy
import io
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

DEVICE = "cuda"


def numbers(*shape: int) -> Tensor:
    return torch.linspace(-1.0, 1.0, steps=math.prod(shape), device=DEVICE).reshape(shape)


def labels() -> Tensor:
    return torch.arange(6, device=DEVICE) % 3


def scalar_reads() -> None:
    x = numbers(6)
    total = x.sum()
    total.item()  # sync: Tensor.item
    float(total)  # sync: Tensor.__float__
    int(total)  # sync: Tensor.__int__
    bool(total > 0)  # sync: Tensor.__bool__
    complex(total)  # sync: Tensor.__complex__
    x.tolist()  # sync: Tensor.tolist
    range(9)[labels()[1]]  # sync: Tensor.__index__
    x[:labels()[2]]  # sync: Tensor.__index__
    f"{total:.3f}"  # sync: Tensor.__format__
    str(x)  # sync: Tensor.__repr__
    f"{x}"  # sync: Tensor.__format__
    math.sqrt(total + 9)  # sync: Tensor.__float__
    round(float(total), 2)  # sync: Tensor.__float__
    x[labels()[1]]  # sync: aten::_local_scalar_dense
    torch.full((2,), total)  # sync: aten::_local_scalar_dense
    x + total
    x * 2 + total.detach()
    torch.stack([total, total]).mean()


def control_flow() -> None:
    x = numbers(6)
    if x.mean() > 0:  # sync: Tensor.__bool__
        pass
    assert (x == x).all()  # sync: Tensor.__bool__
    max(x[0], x[1])  # sync: Tensor.__bool__
    0.5 in x  # sync: Tensor.item
    y = x if x.sum() > 9 else -x  # sync: Tensor.__bool__
    while y[0] > 5:  # sync: Tensor.__bool__
        y = y - 1
    if x.shape[0] > 3 and len(x) > 3 and x.ndim:
        pass
    if x is not None and x.is_cuda and x.dtype == torch.float32:
        pass
    for row in x:
        row + 1
    torch.maximum(x[0], x[1])
    torch.where(x > 0, x, -x)


def equality() -> None:
    x = numbers(6)
    torch.equal(x, x)  # sync: aten::equal
    torch.allclose(x, x)  # sync: aten::allclose
    torch.isclose(x, x).all()
    x.eq(x).any()
    torch.isnan(x).any()


def shapes_from_values() -> None:
    x = numbers(6)
    y = labels()
    torch.nonzero(y)  # sync: aten::nonzero
    torch.where(y > 0)  # sync: aten::nonzero
    torch.argwhere(y)  # sync: aten::nonzero
    torch.masked_select(x, x > 0)  # sync: aten::masked_select
    torch.unique(y)  # sync: aten::_unique2
    torch.unique(y.view(3, 2), dim=0)  # sync: aten::unique_dim
    torch.unique_consecutive(y)  # sync: aten::unique_consecutive
    torch.bincount(y)  # sync: aten::bincount
    torch.bincount(y, minlength=3)  # sync: aten::bincount
    torch.repeat_interleave(x, y)  # sync: aten::repeat_interleave
    torch.repeat_interleave(x, y, output_size=6)
    torch.repeat_interleave(x, 2)
    F.one_hot(y)  # sync: aten::one_hot
    F.one_hot(y, 3)
    F.one_hot(y, num_classes=4).sum()
    torch.combinations(x)  # sync: aten::masked_select
    torch.nonzero_static(y, size=6)
    torch.histc(x, bins=3)  # sync: aten::histc
    torch.histc(x, bins=3, min=-1, max=1)
    torch.topk(x, 2)
    torch.sort(x)
    torch.count_nonzero(y)
    x.repeat(2)
    torch.cumsum(y, 0)
    torch.zeros(3, device=DEVICE).scatter_add(0, y, x)
    torch.zeros(3, device=DEVICE).index_add(0, y, x)
    lengths = torch.full((2,), 3, device=DEVICE)
    torch.segment_reduce(x, "sum", lengths=lengths)  # sync: aten::segment_reduce
    torch.segment_reduce(x, "sum", lengths=lengths, unsafe=True)


def indexing() -> None:
    x = numbers(6)
    mask = x > 0
    x[mask]  # sync: aten::index
    x[mask] = 0.5
    x[mask] = x[:3].clone()  # sync: aten::index_put_
    x[mask] = torch.tensor(0.5, device=DEVICE)  # sync: aten::index_put_  # conditional: torch.tensor
    x[mask] += 1  # sync: aten::index  # sync: aten::index_put_
    x.masked_fill_(mask, 0.5)
    x.masked_fill(mask, x[0])  # sync: aten::masked_fill
    x.masked_fill_(mask, value=x[0])  # sync: aten::masked_fill_
    x.masked_fill(mask, torch.tensor(0.5))
    x.index_fill(0, labels(), x[0])  # sync: aten::index_fill
    x.index_fill_(0, labels(), value=x[0])  # sync: aten::index_fill_
    x.index_fill_(0, labels(), 0.5)
    x.masked_scatter(mask, x)
    x[labels()]
    x[labels()] = 0.5
    x[labels()] = x.clone()
    x[1:3] = 0.0
    x[2]
    x[..., None]
    x[None, 2:]
    x.index_select(0, labels())
    x.gather(0, labels())
    x.take(labels())
    x[[0, 2]]  # conditional: aten::index
    x[torch.tensor([0, 2])]  # conditional: aten::index


def copies() -> None:
    x = numbers(4, 4)
    host = torch.zeros(4, 4)
    pinned = torch.zeros(4, 4, pin_memory=True)
    x.cpu()  # sync: Tensor.cpu
    x.to("cpu")  # sync: Tensor.to
    x.to(torch.device("cpu"), torch.float64)  # sync: Tensor.to
    x.to(host)  # sync: Tensor.to
    x.numpy(force=True)  # sync: Tensor.numpy
    x.detach().cpu().numpy()  # sync: Tensor.cpu
    host.copy_(x)  # sync: Tensor.copy_
    host.copy_(x, non_blocking=True)  # sync: Tensor.copy_
    host[0] = x[0]  # sync: Tensor.copy_
    pinned.copy_(x)  # sync: Tensor.copy_
    pinned.copy_(x, non_blocking=True)
    pinned[:, ::2].copy_(x[:, ::2], non_blocking=True)  # sync: Tensor.copy_
    x.to("cpu", non_blocking=True)
    x.type(torch.FloatTensor)  # sync: Tensor.to
    x.type_as(host)  # sync: Tensor.type_as
    host.fill_(x[0, 0])  # sync: aten::fill_
    np.asarray(x.tolist())  # sync: Tensor.tolist
    host.cuda()  # conditional: Tensor.cuda
    host.to(DEVICE)  # conditional: Tensor.to
    host.to(DEVICE, non_blocking=True)  # conditional: Tensor.to
    pinned.to(DEVICE)  # conditional: Tensor.to
    pinned.to(DEVICE, non_blocking=True)
    host.type_as(x)  # conditional: Tensor.type_as
    host.pin_memory().cuda(non_blocking=True)
    torch.tensor([1.0], device=DEVICE)  # conditional: torch.tensor
    torch.as_tensor(np.zeros(3), device=DEVICE)  # conditional: torch.as_tensor
    x.copy_(host)  # conditional: Tensor.copy_
    x.copy_(pinned, non_blocking=True)
    x.to(DEVICE).cuda()
    x.half().type_as(x).fill_(x[0, 0])
    x.to(torch.float64).clone().contiguous()
    x.copy_(x.t().clone())
    host.cpu().to("cpu").numpy()
    copy.deepcopy(x)
    torch.tensor([], device=DEVICE).cpu()  # nothing is copied


def factories() -> None:
    x = numbers(6)
    torch.zeros(3, device=DEVICE).new(2, 3).new(x.shape)
    torch.randn(3, device=torch.device(DEVICE))
    torch.randperm(6, device=DEVICE)
    torch.arange(3, device=x.device)
    torch.full((2,), 1.0, device=DEVICE)
    torch.randn_like(torch.zeros_like(x))
    x.new_zeros(3)
    x.new_tensor([1.0])  # conditional: Tensor.new_tensor
    x.new([1.0])  # conditional: Tensor.new
    torch.tensor([x[0], x[1]])  # sync: Tensor.__float__
    torch.empty(3, device="cpu").tolist()
    torch.zeros_like(x, device="cpu").tolist()
    with torch.device(DEVICE):
        inside = torch.ones(3)
    inside.sum().item()  # sync: Tensor.item


def explicit_waits() -> None:
    stream = torch.cuda.Stream()
    event = torch.cuda.Event(enable_timing=True)
    other = torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()  # sync: torch.cuda.synchronize
    stream.synchronize()  # sync: torch.cuda.Stream.synchronize
    torch.cuda.current_stream().synchronize()  # sync: torch.cuda.Stream.synchronize
    event.record()
    other.record()
    event.synchronize()  # sync: torch.cuda.Event.synchronize
    torch.accelerator.synchronize()  # sync: torch.accelerator.synchronize
    torch.cuda.empty_cache()  # conditional: torch.cuda.empty_cache
    event.elapsed_time(other)
    event.query(), stream.query()
    stream.wait_event(event)
    stream.wait_stream(torch.cuda.current_stream())
    event.wait(stream)
    with torch.cuda.stream(stream):
        numbers(3).record_stream(stream)
    torch.cuda.memory_allocated()


def linear_algebra() -> None:
    a = torch.eye(3, device=DEVICE) * 2
    torch.linalg.inv(a)  # sync: aten::_linalg_check_errors
    torch.linalg.cholesky(a)  # sync: aten::_linalg_check_errors
    torch.linalg.solve(a, a)  # sync: aten::_linalg_check_errors
    torch.linalg.eigh(a)  # sync: aten::_linalg_eigh
    torch.linalg.svd(a)  # sync: aten::_linalg_svd
    torch.linalg.eig(a)  # sync: aten::linalg_eig
    torch.linalg.inv_ex(a)
    torch.linalg.cholesky_ex(a)
    torch.linalg.inv_ex(a, check_errors=True)  # sync: aten::linalg_inv_ex
    torch.linalg.cholesky_ex(a, check_errors=True)  # sync: aten::linalg_cholesky_ex
    torch.linalg.solve_ex(a, a)
    torch.linalg.solve_ex(a, a, check_errors=True)  # sync: aten::_linalg_solve_ex
    torch.linalg.lu_factor_ex(a, check_errors=True)  # sync: aten::linalg_lu_factor_ex
    torch.linalg.ldl_factor_ex(a, check_errors=True)  # sync: aten::linalg_ldl_factor_ex
    torch.linalg.qr(a)
    torch.linalg.norm(a)
    torch.linalg.pinv(a)  # sync: aten::linalg_pinv
    torch.pinverse(a)  # sync: aten::linalg_pinv
    torch.linalg.pinv(a, hermitian=True)  # sync: aten::linalg_pinv
    torch.linalg.pinv(a[:0])
    torch.matrix_exp(a)  # sync: aten::linalg_matrix_exp
    torch.matrix_exp(a[:1, :1])
    torch.matrix_exp(a.expand(0, 3, 3))
    a @ a


def sampling() -> None:
    p = torch.full((4,), 0.25, device=DEVICE)
    torch.multinomial(p, 2)
    torch.multinomial(p, 8, replacement=True)
    torch.bernoulli(p)
    torch.rand_like(p)
    F.dropout(p, 0.5)
    torch.normal(p, p)  # sync: aten::normal
    torch.distributions.Categorical(logits=p, validate_args=False).sample()
    torch.quantile(p, torch.full((1,), 0.5, device=DEVICE))
    torch.quantile(p, 0.5)
    torch.searchsorted(p, p)
    torch.searchsorted(p, p, sorter=p.argsort())  # sync: aten::searchsorted


def sparse() -> None:
    d = torch.eye(3, device=DEVICE)
    s = d.to_sparse()  # sync: aten::_to_sparse
    torch.sparse.mm(s, d)
    indices = torch.zeros(1, 2, dtype=torch.long, device=DEVICE)
    torch.sparse_coo_tensor(indices, numbers(2), (3,)).coalesce()  # sync: aten::_coalesce
    torch.sparse_coo_tensor(indices, numbers(2))  # sync: torch.sparse_coo_tensor
    torch.sparse_coo_tensor(indices, numbers(2), size=(3,))
    torch.sparse_coo_tensor(indices[:, :0], numbers(2)[:0])
    torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], device=DEVICE)  # sync: torch.sparse_coo_tensor
    torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], device=0)  # sync: torch.sparse_coo_tensor
    torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0])
    torch.sparse_coo_tensor((2, 3), device=DEVICE)
    rows = torch.arange(3, device=DEVICE)
    torch.sparse_csr_tensor(rows, rows[:2], numbers(2))  # sync: torch.sparse_csr_tensor
    torch.sparse_csr_tensor(rows, rows[:2], numbers(2), (2, 3))


def padded_sequences() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).eval()
    encoder.to(DEVICE)  # conditional: Tensor.to
    x = torch.zeros(2, 3, 4, device=DEVICE)
    padding = torch.arange(3, device=DEVICE).expand(2, 3) > 1
    with torch.no_grad():
        encoder(x)
        encoder(x, src_key_padding_mask=padding)  # sync: aten::_nested_tensor_from_mask_left_aligned  # sync: aten::_nested_tensor_from_mask


def network() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                        nn.LazyLinear(3))
    net.to(DEVICE)  # conditional: Tensor.to
    x = torch.randn(6, 1, 8, 8, device=DEVICE)
    net(x)
    loss = F.cross_entropy(net(x), labels())
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)  # sync: Tensor.__bool__
    nn.utils.clip_grad_value_(net.parameters(), 1.0)
    for kwargs in ({"foreach": True}, {"fused": True}, {"foreach": False}):
        optimizer = torch.optim.AdamW(net.parameters(), **kwargs)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9).step()
    nn.utils.rnn.pad_sequence([x[0, 0], x[1, 0]]).sum()
    F.interpolate(x, scale_factor=2.0)
    nn.MultiheadAttention(8, 2, device=DEVICE)(x[:, 0], x[:, 0], x[:, 0])
    nn.LSTM(8, 4, device=DEVICE)(x[:, 0])
    packed = nn.utils.rnn.pack_sequence([x[0, 0], x[1, 0, :5]])
    _, lengths = nn.utils.rnn.pad_packed_sequence(nn.LSTM(8, 4, device=DEVICE)(packed)[0])
    lengths.tolist()
    F.embedding(labels(), numbers(3, 2))
    F.scaled_dot_product_attention(x, x, x)
    nn.Parameter(x).device.type == "cuda" or 1 / 0
    loss.item()  # sync: Tensor.item


def gradients_across_devices() -> None:
    leaf = torch.ones(3, requires_grad=True)
    there = leaf.to(DEVICE)  # conditional: Tensor.to
    there.square().sum().backward()  # sync: backward of a copy
    leaf.grad.tolist()
    weight = torch.ones(3, device=DEVICE, requires_grad=True)
    here = weight.cpu()  # sync: Tensor.cpu
    here.sum().backward()  # conditional: backward of a copy
    weight.grad.sum().item()  # sync: Tensor.item


def gradients_through_functions_of_data() -> None:
    weight = torch.ones(3, device=DEVICE, requires_grad=True)
    here = torch.as_tensor(weight * 2, device="cpu")  # sync: torch.as_tensor
    here.sum().backward()  # conditional: backward of a copy
    here = torch.asarray(weight * 2, device="cpu", requires_grad=True)  # sync: torch.asarray
    here.sum().backward()  # conditional: backward of a copy
    leaf = torch.ones(3, requires_grad=True)
    there = torch.as_tensor(leaf * 2, device=DEVICE)  # conditional: torch.as_tensor
    there.sum().backward()  # sync: backward of a copy
    leaf.grad.tolist()


def mixed_precision() -> None:
    net = nn.Linear(4, 2, device=DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = net(torch.ones(2, 4, device=DEVICE))
        loss = out.float().sum()
    assert out.dtype is torch.bfloat16
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)  # sync: Tensor.item
    scaler.update()
    scaler.get_scale()  # sync: Tensor.item


def uploads_in_a_loop() -> None:
    """What is copied once is set-up; torch waits for the stream after each blocking copy."""
    net = nn.Linear(4, 2)
    net.to(DEVICE)  # conditional: Tensor.to
    host, pinned = torch.ones(2, 4), torch.ones(2, 4).pin_memory()
    x = torch.zeros(2, 4, device=DEVICE)
    for step in range(3):
        net.cuda()
        net(host.to(DEVICE))  # conditional: Tensor.to  # sync: Tensor.to
        pinned.cuda()  # conditional: Tensor.cuda  # sync: Tensor.cuda
        host.to(DEVICE, non_blocking=True)  # conditional: Tensor.to
        pinned.to(DEVICE, non_blocking=True)
        x.copy_(host)  # conditional: Tensor.copy_  # sync: Tensor.copy_
        torch.tensor([step], device=DEVICE)  # conditional: torch.tensor  # sync: torch.tensor


def checkpoints() -> None:
    net = nn.Linear(4, 2, device=DEVICE)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)  # sync: UntypedStorage.cpu
    file.seek(0)
    loaded = torch.load(file, map_location="cpu")
    loaded["weight"].tolist()
    file.seek(0)
    loaded = torch.load(file, map_location=DEVICE)  # conditional: UntypedStorage.to
    loaded["weight"].tolist()  # sync: Tensor.tolist
    file.seek(0)
    loaded = torch.load(file)  # conditional: UntypedStorage.to
    net.load_state_dict(loaded)
    copy.deepcopy(net)(torch.ones(1, 4, device=DEVICE)).tolist()  # sync: Tensor.tolist


PROGRAMS = (
    scalar_reads,
    uploads_in_a_loop,
    control_flow,
    equality,
    shapes_from_values,
    indexing,
    copies,
    factories,
    explicit_waits,
    linear_algebra,
    sampling,
    sparse,
    padded_sequences,
    network,
    gradients_across_devices,
    gradients_through_functions_of_data,
    mixed_precision,
    checkpoints,
)
