"""Writes tests/golden/rows.json: what torch computes in float64, values and gradients, for the kernels of
temper/ops/native/kernels/rows.h. Inputs are float32 numbers, so that float and double kernels start from the same values.

Usage: python make_rows_goldens.py tests/golden/rows.json
"""

import json
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)


def numbers(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).float().double().requires_grad_()


def gradients(y, dy, inputs):
    return torch.autograd.grad((y * dy).sum(), inputs)


def rms_norm(one_plus, eps=1e-5):
    x, w, dy = numbers(5, 19), numbers(19), numbers(5, 19)
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (1 + w if one_plus else w)
    dx, dw = gradients(y, dy, [x, w])
    return dict(rows=5, width=19, one_plus=one_plus, eps=eps, x=x, weight=w, dy=dy, y=y, dx=dx, dweight=dw)


def rotate(heads=3, dim=10):
    position = torch.tensor([4, 0, 11])
    angle = torch.arange(12)[:, None] * 100.0 ** (-torch.arange(dim // 2) * 2.0 / dim)
    cos, sin = angle.cos().float().double(), angle.sin().float().double()
    x, dy = numbers(3, heads, dim), numbers(3, heads, dim)
    c, s = (torch.cat([t, t], -1)[position][:, None, :] for t in (cos, sin))
    y = x * c + torch.cat([-x[..., dim // 2:], x[..., :dim // 2]], -1) * s  # transformers' rotate_half
    return dict(rows=3, heads=heads, dim=dim, position=position, cos=cos, sin=sin, x=x, dy=dy, y=y,
                dx=gradients(y, dy, [x])[0])


def gated(kind, act):
    gate, up, dy = numbers(64, scale=3.0), numbers(64), numbers(64)
    y = act(gate) * up
    dgate, dup = gradients(y, dy, [gate, up])
    return dict(kind=kind, gate=gate, up=up, dy=dy, y=y, dgate=dgate, dup=dup)


def soft_cap(cap=30.0):
    x = numbers(64, scale=40.0)
    return dict(cap=cap, x=x, y=cap * torch.tanh(x / cap))


def softmax(rows=2, width=530):
    x, g, h = numbers(rows, width, scale=4.0), numbers(rows), numbers(rows)
    target = torch.tensor([3, 529])
    logp = torch.log_softmax(x, -1)
    entropy = -(logp.exp() * logp).sum(-1)
    chosen = logp.gather(-1, target[:, None])[:, 0]
    dx = torch.autograd.grad((g * chosen + h * entropy).sum(), [x], retain_graph=True)[0]
    plain = torch.autograd.grad((g * chosen).sum(), [x])[0]
    return dict(rows=rows, width=width, x=x, target=target, g=g, h=h, log_sum_exp=torch.logsumexp(x, -1), entropy=entropy,
                dx=dx, dx_without_entropy=plain)


def optimizer(make):
    param = numbers(24)
    start, grads = param.detach().clone(), [numbers(24) for _ in range(4)]
    step = make([param])
    for grad in grads:
        param.grad = grad.detach() * 0.5  # clipped
        step.step()
    return dict(start=start, grads=grads, grad_scale=0.5, end=param)


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.detach().flatten().tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


goldens = dict(
    torch=torch.__version__,
    rms_norm=[rms_norm(False), rms_norm(True)],
    rotate=rotate(),
    gated=[gated("silu", F.silu), gated("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")), gated("gelu", F.gelu)],
    soft_cap=soft_cap(),
    softmax=softmax(),
    adamw=optimizer(lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1)),
    sgd=optimizer(lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1)),
)
with open(sys.argv[1], "w") as out:
    json.dump(plain(goldens), out, separators=(",", ":"))
    out.write("\n")
