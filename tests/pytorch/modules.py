"""Small, typical PyTorch modules, each with an example of its inputs."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention
from torch import nn

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {}


def _images(channels: int = 3, size: int = 8) -> torch.Tensor:
    return torch.randn(4, channels, size, size, generator=torch.Generator().manual_seed(1))


def _tokens(length: int = 6) -> torch.Tensor:
    return torch.randint(0, 11, (4, length), generator=torch.Generator().manual_seed(1))


def _values(*shape: int) -> torch.Tensor:
    return torch.randn(4, *shape, generator=torch.Generator().manual_seed(1))


def module(*example: Any) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Register a class with an example of its inputs."""

    def register(cls: type[nn.Module]) -> type[nn.Module]:
        MODULES[cls.__name__] = cls, example
        return cls

    return register


@module(_images())
class Residual(nn.Module):
    """In-place ReLU and addition, BatchNorm, padded max-pooling, depthwise convolution, squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.inner = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), nn.BatchNorm2d(4), nn.ReLU6())
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1), nn.Hardswish(), nn.Conv2d(2, 4, 1), nn.Hardsigmoid()
        )
        self.strided = nn.Conv2d(4, 6, 3, 2, 1)
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(24, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.stem(x))
        inner = self.inner(x)
        inner += x
        return self.classifier(self.strided(inner * self.scale(inner)))


@module(_tokens())
class Gpt(nn.Module):
    """Causal attention by a mask of infinities, tied weights, positions by arange."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.norm, self.attend, self.join = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.widen, self.narrow = nn.Linear(8, 32), nn.Linear(32, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length = tokens.size()
        x = self.words(tokens) + self.places(torch.arange(0, length, device=tokens.device))
        q, k, v = (p.view(batch, length, 2, 4).transpose(1, 2) for p in self.attend(self.norm(x)).split(8, dim=2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(4)
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        x = x + self.join((F.softmax(scores, -1) @ v).transpose(1, 2).contiguous().view(batch, length, 8))
        return self.head(x + self.narrow(F.gelu(self.widen(self.norm(x)), approximate="tanh")))


@module(_tokens(7))
class Recurrent(nn.Module):
    """Two bidirectional LSTM layers, a GRU that begins in a given state, and an LSTM cell."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.gru, self.cell = nn.GRU(10, 4, batch_first=True), nn.LSTMCell(6, 4)
        self.classifier = nn.Linear(4, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        begin, _ = self.cell(x[:, 0])
        return self.classifier(self.gru(self.lstm(x)[0], begin[None])[0][:, -1])


@module(_values(5, 6), _values(3, 6))
class Translator(nn.Module):
    """PyTorch's transformer of encoder and decoder: two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Transformer(6, 2, 1, 1, 12, 0.0, batch_first=True)
        self.head = nn.Linear(6, 4)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.body(source, target, tgt_mask=mask))


@module(_images(1))
class UNet(nn.Module):
    """Transposed convolutions, joins, resizing, group and instance normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding="same", padding_mode="reflect")
        self.up = nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1)
        self.instance, self.group = nn.InstanceNorm2d(4, affine=True), nn.GroupNorm(2, 8)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.silu(self.instance(self.down(x)))
        b = F.elu(self.group(self.deep(F.avg_pool2d(a, 2))))
        coarse = F.interpolate(b, scale_factor=2, mode="bilinear") + F.interpolate(b, scale_factor=2)
        return self.out(torch.cat([a, self.up(b)], 1) + coarse)


@module(_values(2, 12))
class Signals(nn.Module):
    """Dilated causal convolutions with weight normalization, PReLU, 1-D pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(2, 4, 3, dilation=2)
        self.second = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3))
        self.norm, self.slope, self.head = nn.BatchNorm1d(4), nn.PReLU(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(F.relu(self.first(F.pad(x, (4, 0)))))
        x = F.max_pool1d(self.slope(self.second(F.pad(x, (2, 0)))), 2)
        return F.log_softmax(self.head(x[:, :, -1] + x.amax(-1)), dim=-1)


@module(_values(2, 4, 6, 6))
class Volumes(nn.Module):
    """3-D convolution, pooling and BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool3d(F.relu(self.norm(self.conv(x))), 2, return_indices=True)[0]
        return self.head((F.adaptive_avg_pool3d(x, 1) + F.adaptive_max_pool3d(x, 1)).flatten(1))


@module(_values(6), _values(6))
class Mathematics(nn.Module):
    """Handwritten computations: sums, norms, sorting, triangles, masks, Einstein sums, experts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.both = nn.Linear(6, 6), nn.Bilinear(6, 6, 2)
        self.gate, self.experts = nn.Linear(6, 3), nn.ModuleList([nn.Linear(6, 2) for _ in range(3)])

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        largest, places = h.topk(2, -1)
        positive = (h > 0).float()
        parts = [
            h.pow(2).sum(1), h.var(1), h.norm(dim=1), torch.logsumexp(h, 1), h.cumsum(1)[:, 2],
            F.cosine_similarity(h, other), torch.tril(h[:, :, None] * h[:, None]).sum((1, 2)),
            (h * positive).sum(1) / (positive.sum(1) + 1), largest.sum(1), h.sort(-1)[0][:, 0], h.min(1)[0],
            torch.gather(h, 1, places)[:, 0], torch.where(h > 0, h, other).mean(1), h.clamp(-0.5, 0.5).abs().std(1),
        ]  # fmt: skip
        weights = torch.softmax(self.gate(x), -1)
        mixed = torch.einsum("be,beo->bo", weights, torch.stack([expert(x) for expert in self.experts], 1))
        return torch.cat([torch.stack(parts, 1), self.both(h, other), mixed], 1)


@module(_images(4, 4))
class Activations(nn.Module):
    """PyTorch's activations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)
        self.activations = nn.ModuleList(
            [nn.ELU(0.5), nn.SELU(), nn.CELU(0.7), nn.SiLU(), nn.Mish(), nn.Softplus(2.0), nn.Hardtanh(-0.5, 0.5), nn.Tanh(),
             nn.Softsign(), nn.LogSigmoid(), nn.LeakyReLU(), nn.GELU(), nn.Tanhshrink(), nn.Softshrink(), nn.Hardshrink(),
             nn.Threshold(0.1, -0.2), nn.Softmin(1), nn.Sigmoid()]
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        return torch.stack([activation(x) for activation in self.activations]).sum(0) + F.glu(torch.cat([x, x], 1), 1)


@module(_images(4), _values(6))
class Decomposed(nn.Module):
    """Ops that PyTorch decomposes next to BatchNorm, unused positions, and a bilinear layer of odd sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.both = nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6), nn.Bilinear(6, 6, 5)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        x = F.hardshrink(self.norm(self.conv(x)), 0.3)
        pooled = F.adaptive_max_pool2d(x, 1).flatten(1) + torch.logaddexp(x, x.detach() + 1).mean((2, 3))
        variance, mean = torch.var_mean(x, (2, 3))
        return self.both(pooled, other) + F.huber_loss(mean, other) + variance.nan_to_num()[:, :5]


@module(_tokens(), torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0], [1] * 6]))
class Decoder(nn.Module):
    """Attention as in `transformers`: a mask indexed on four axes, grouped queries, a scale, rotations."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.query, self.key = nn.Embedding(11, 8), nn.Linear(8, 16), nn.Linear(8, 8)
        self.value, self.head = nn.Linear(8, 8), nn.Linear(16, 11)

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[2])[:, None] / torch.tensor([1.0, 10.0])
        turned, kept = x[..., :4], x[..., 4:]  # the latter is empty
        first, second = turned.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin, kept], -1)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        x = self.embedding(input_ids)
        rows, places = x.shape[:2]
        query, key, value = (
            own(x).view(rows, places, -1, 4).transpose(1, 2) for own in (self.query, self.key, self.value)
        )
        at = torch.arange(places)
        real = attention_mask.bool()[torch.arange(rows)[:, None, None, None], at[None, None, None, :]]
        mask = real & ~(at[None, :] > at[:, None])
        query, key = self._rotated(query), self._rotated(key)
        x = F.scaled_dot_product_attention(query, key, value, mask, scale=0.9, enable_gqa=True)
        return self.head(x.transpose(1, 2).reshape(rows, places, 16))


@module(_values(12, 2))
class Patches(nn.Module):
    """Overlapping windows of signals."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).unfold(1, 4, 3))


@module(_tokens())
class Counts(nn.Module):
    """Sums, cumulative sums and tests of booleans and integers, as in padding masks."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        real = x != 2
        places = real.cumsum(1) * real
        shares = self.embedding(places) / real.sum(1, keepdim=True)[..., None]
        return torch.where((x - 2).any(1)[:, None, None] & (x + 1).all(1)[:, None, None], shares, -shares)


@module(_images(4, 7))
class Windows(nn.Module):
    """Windows that extend beyond the edge or overlap, and circular and replicated padding."""

    def __init__(self) -> None:
        super().__init__()
        self.around = nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")
        self.edge, self.head = nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate"), nn.Linear(4 * 30, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.around(x) + self.edge(x)
        parts = [
            F.max_pool2d(x, 3, 2, ceil_mode=True), F.max_pool2d(x, 2, 2, ceil_mode=True)[:, :, :3, :3],
            F.avg_pool2d(x, 2, 2, ceil_mode=True)[:, :, 1:, 1:],
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)[:, :, :3, :3],
            F.avg_pool2d(x, 4, 3, 1, ceil_mode=True)[:, :, -3:, -3:],
            F.avg_pool2d(x, 3, 2, 1, True, divisor_override=5)[:, :, :3, :3],
            F.adaptive_avg_pool2d(x, 3), F.adaptive_max_pool2d(x, 3), F.adaptive_avg_pool2d(x[:, :, :1, :2], 3),
            F.adaptive_avg_pool1d(x.flatten(2), 9).view(4, 4, 3, 3),
        ]  # fmt: skip
        pooled = torch.cat([F.pad(p, (0, 3 - p.shape[3], 0, 3 - p.shape[2])).flatten(2) for p in parts], 2)
        return self.head(pooled[:, :, ::3].flatten(1))


@module(_values(6))
class Blocks(nn.Module):
    """Blocks under `no_grad` and disabled `autocast`, and random draws without effect."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            teacher = self.first(x)
            largest = teacher.argmax(-1)
        with torch.autocast("cpu", enabled=False):
            x = self.second(x + teacher)
        kept = x.new_empty(x.shape[0], 1).bernoulli_(1.0)  # stochastic depth of rate 0
        return self.head(F.alpha_dropout(x * kept, 0.0, self.training)) + largest[:, None]


@module(_values(12, 3))
class Channels(nn.Module):
    """BatchNorm over rows times channels as in PatchTST, and over channels times rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(9, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = len(x)
        patches = x.transpose(1, 2).unfold(-1, 4, 4)  # [rows, channels, patches, 4]
        x = self.first(patches.reshape(-1, 3, 4).transpose(1, 2)).reshape(rows, 3, 4, 3)
        x = self.second(x.transpose(0, 1).reshape(3 * rows, 4, 3)).reshape(3, rows, 4, 3)
        return self.head(x.transpose(0, 1).sum(2).flatten(1))


@module(_values(6))
class Assigned(nn.Module):
    """Assignments to parts of tensors: to zeros, as in Swin's window numbering, and of values with gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x.new_zeros((6, 6))
        for i, rows in enumerate([(0, 3), (3, 6)]):
            for j, columns in enumerate([(0, -2), (-2, 6)]):
                mask[rows[0] : rows[1], columns[0] : columns[1]] = 2 * i + j
        h = self.first(x) + 0
        h[:, 0] = h[:, 1] * 2
        h[1:3, 2:] *= 3
        h[-1] = x[0]
        return torch.addmm(h[:, :3], h @ mask, self.head.weight.t(), beta=0.5, alpha=2) + self.head.bias


@module(_images(2, 4))
class Aligned(nn.Module):
    """Resizing with aligned corners, as in segmentation models, to more, fewer and one position."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)
        self.larger, self.smaller = nn.UpsamplingBilinear2d((7, 9)), nn.Upsample((3, 1), None, "bilinear", True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.smaller(self.larger(self.conv(x)))


@module(_images(2, 4))
class Standardized(nn.Conv2d):
    """A convolution that standardizes its weights by `batch_norm`, as in timm."""

    def __init__(self) -> None:
        super().__init__(2, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = F.batch_norm(self.weight.reshape(1, 3, -1), None, None, training=True, momentum=0.0)
        return F.conv2d(x, weight.reshape_as(self.weight), self.bias)


@module(_values(96))
class Spectrogram(nn.Module):
    """A masked spectrogram as in torchaudio and its inverse, with windows shorter than frames."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(12))
        self.mask, self.head = nn.Linear(9, 9), nn.Linear(96 + 11 + 9, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(x, 16, 6, 12, self.window, return_complex=True)
        decibels = 10 * torch.log10(spectrum.abs().pow(2).clamp(min=1e-10))
        mask = torch.sigmoid(self.mask(decibels.transpose(1, 2))).transpose(1, 2)
        clean = torch.istft(spectrum * mask, 16, 6, 12, self.window, length=96)
        plain = torch.stft(
            clean, 20, 10, normalized=True, center=False, return_complex=True, window=torch.hamming_window(20)
        )
        again = torch.istft(torch.stft(x, 16, 8, return_complex=True, onesided=False, window=torch.ones(16)), 16, 8,
                            normalized=True, onesided=False, window=torch.ones(16))  # fmt: skip
        return self.head(torch.cat([clean, torch.view_as_real(plain)[..., 0].mean(-1), again[:, :9]], 1))


@module(_values(2, 6, 7))
class Fourier(nn.Module):
    """Transforms of real and complex numbers, weights of frequencies (FNO, arXiv:2010.08895), and their norms."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(2, 3, 2, 3, 2)), nn.Parameter(torch.randn(2, 6, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum, modes = torch.fft.rfft2(x, norm="ortho"), torch.zeros(len(x), 3, 6, 4, dtype=torch.cfloat)
        modes[:, :, :2, :3] = torch.einsum(
            "bixy,ioxy->boxy", spectrum[:, :, :2, :3], torch.view_as_complex(self.weight)
        )
        mixed = torch.fft.irfft2(modes, s=(6, 7), norm="ortho")
        turned = torch.fft.fft(torch.complex(x, self.scale.expand_as(x)), n=9, dim=1) * 1j
        turned = turned + torch.polar(x[:, :1], x[:, 1:])
        back = torch.fft.ifftn(turned / (2 + turned.conj()), dim=(-2, -1), norm="forward").real[:, :3]
        return mixed + back.abs() + torch.fft.irfft(torch.fft.rfft(self.scale[:1], dim=1), n=6, dim=1)


@module(_images(3, 6), _values(5, 4, 2))
class Sampled(nn.Module):
    """Sampling at positions, some outside, and resizing in each mode of `interpolate`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.places = nn.Conv2d(3, 2, 3, padding=1), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        x, grid = self.conv(x), self.places(grid)
        turns = torch.eye(2, 3).expand(4, 2, 3) + grid.mean((1, 2))[:, None, :1]
        grid = grid + F.affine_grid(turns, [4, 2, 5, 4], align_corners=False)
        parts = [
            F.grid_sample(x, grid, mode, padding, aligned)
            for mode, padding, aligned in [
                ("bilinear", "zeros", False),
                ("bilinear", "border", True),
                ("nearest", "zeros", False),
            ]
        ]
        parts += [
            F.interpolate(x, (5, 4), mode=mode, antialias=smooth)
            for mode, smooth in [
                ("bicubic", False),
                ("bicubic", True),
                ("bilinear", True),
                ("nearest", False),
                ("nearest-exact", False),
            ]
        ]
        parts.append(F.interpolate(x, (5, 4), mode="bicubic", align_corners=True))
        parts.append(F.interpolate(x, scale_factor=(0.9, 0.7), mode="bilinear"))
        line, volume = F.interpolate(x[:, :, 0], 20, mode="linear"), x.reshape(4, 2, 2, 3, 6)
        volume = F.interpolate(volume, scale_factor=(1, 1, 2), mode="trilinear")[:, :, :, 0]
        return torch.stack([*parts, line.reshape(4, 2, 5, 4)]).sum(0) + volume.reshape(4, 2, 24)[:, :, :20].reshape(
            4, 2, 5, 4
        )


@module(_tokens(8), _values(8))
class Bags(nn.Module):
    """Embedding bags: weighted sums, means without padding, maxima, and flat bags with offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.sums, self.means = nn.EmbeddingBag(11, 3, mode="sum"), nn.EmbeddingBag(11, 3, padding_idx=2)
        self.most = nn.EmbeddingBag(11, 3, mode="max")

    def forward(self, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        flat = self.sums(ids.flatten(), torch.arange(0, ids.numel(), 8))
        return torch.cat([self.sums(ids, per_sample_weights=weights) + flat, self.means(ids), self.most(ids)], 1)


@module(_images(2, 7))
class Columns(nn.Module):
    """Unfolding and folding; grouped, depthwise and dilated transposed convolutions, in 1-D and 3-D."""

    def __init__(self) -> None:
        super().__init__()
        self.columns, self.mix = nn.Unfold(3, 1, 1, 2), nn.Linear(18, 8)
        self.image = nn.Fold((8, 8), 2, stride=2)
        self.groups, self.depth = nn.ConvTranspose2d(2, 4, 3, groups=2), nn.ConvTranspose2d(4, 4, 4, 2, 1, groups=4)
        self.wide, self.line = nn.ConvTranspose2d(4, 2, 3, dilation=2), nn.ConvTranspose1d(2, 2, 4, 2, groups=2)
        self.volume = nn.ConvTranspose3d(2, 2, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = self.image(self.mix(self.columns(x).transpose(1, 2)).transpose(1, 2))
        image = self.wide(self.depth(self.groups(image)))
        return torch.cat(
            [self.line(image[:, :, 0]), self.volume(image.reshape(-1, 2, 2, 12, 24)[..., :3, :5]).flatten(2)], 2
        )


@module(_values(6, 8))
class Indexed(nn.Module):
    """Values read and assigned by indices on several axes and by masks, and pairwise distances."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.first(x), self.second(x)
        rows = torch.arange(len(x))
        result = torch.zeros(len(x), 6, 4, dtype=first.dtype).to(first.device)
        for i in range(4):
            result[:, :, i] = first[:, :, i] * 2
        places = second.mean(-1).topk(2)[1]
        result[rows[:, None], places] = second[rows[:, None], places - 6] + 1
        result[x[..., 0] > 1] = 0.5
        lower, left = torch.tril_indices(6, 4, -1)
        pairs = torch.cdist(first, second)[:, lower[:4], left[:4]]
        crossed = x[:, torch.tensor([0, -1]), :, None][..., torch.tensor([0])][rows[:, None], torch.tensor([[1, 0]])]
        return result + pairs[:, None] + crossed[:, :1, :4, 0]


@module(_values(5, 4))
class Projected(nn.Module):
    """A bidirectional two-layer LSTM with projections."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True, proj_size=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, (last, cells) = self.lstm(x)
        return outputs[:, -1] + last.sum(0).repeat(1, 2) + cells[:, :, :1].mean(0)


@module(_values(6))
class Rounded(nn.Module):
    """Remainders, rounding, bits of integers and tests of floats."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        whole = (x * 4).long()
        parts = [
            torch.fmod(x, 0.7), torch.fmod(x, -x.detach().abs() - 0.2), x * torch.div(x, 0.3, rounding_mode="trunc"),
            x * torch.div(whole, 3, rounding_mode="trunc"), x * x.round(decimals=1), F.softplus(4 * x, 2.0, 1.0),
            x * ((whole & 3) | 4), x * (whole ^ 5), x * ~whole, x * torch.logical_xor(whole, x > 0),
            x * torch.logical_not(whole), x * ((x > 0) ^ (x < 1)), torch.lgamma(x.abs() + 0.5), +x,
        ]  # fmt: skip
        return torch.stack(parts, 1)


@module(_values(5, 6))
class Ordered(nn.Module):
    """Axes that move, norms of any order, medians, running products, and stable sorting."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        moved = x.unsqueeze(3).movedim((1, -1), (2, 1))[:, 0]
        parts = [
            moved, F.normalize(x, 3, 2), F.normalize(F.relu(x), float("inf"), 2), x - x.median(1, keepdim=True)[0],
            x * self.layer.bias.median(), x - x.kthvalue(2, 1, True)[0], x.cumprod(2), x.sort(dim=2, stable=True)[0],
            x * (x > 1).max(1, keepdim=True)[0],
        ]  # fmt: skip
        return torch.stack(parts, 1)


@module(_values(5, 6))
class Scattered(nn.Module):
    """Values put or added at indices of any axis, every other slice assigned, and joins of several types."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        places, zeros = x.argsort(1)[:, :3], torch.zeros_like(x)
        every = x + 0
        every[:, :, ::2] = every[:, :, 1::2] * 2
        every[..., [0, 4]] = 0.5
        added = zeros.index_add(2, torch.tensor([0, 2, 2]), x[..., :3])
        diagonal = torch.diagonal(x, 1, 1, 2)
        parts = [
            zeros.scatter(1, places, 2.0) * x, zeros.scatter(1, places, x[:, :3]),
            x.scatter_add(1, places % 2, x[:, 2:] * x[:, 2:]),
            x.scatter_reduce(1, places, x[:, :3] * 2, "sum"),
            x.scatter_reduce(1, places % 2, x[:, :3], "mean"), every, added,
            x.slice_scatter(x[:, :2] * 2, 1, 1, 3), x.select_scatter(x[:, 0] * 2, 1, -1),
            x.swapdims(1, 2)[:, :5].narrow(2, -1, 1),
            torch.cat([x[:, :2], x[:, :1] > 0, x[:, :2].long()], 1), x + diagonal[:, :, None],
            torch.cat(x.tensor_split(4, 1)[::-1], 1) + torch.cat(x.tensor_split((1, -2), 2)[::-1], 2),
        ]  # fmt: skip
        return torch.stack(torch.broadcast_tensors(*parts), 1)


@module(_values(5, 6), torch.arange(20).reshape(4, 5) % 3 > 0)
class Unread(nn.Module):
    """Attention under a mask of booleans that lets some places read nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        return F.scaled_dot_product_attention(x, x, x, mask[:, :, None] & mask[:, None])


@module(_values(6))
class InPlace(nn.Module):
    """Changes in place by ops that PyTorch decomposes, also of a part of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.mish = nn.Linear(6, 6), nn.Mish(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        part = x + 0
        part.narrow(1, 1, 2).clamp_min_(0.1)
        parts = [
            self.mish(x + 0), (x + 0).clip_(-0.1, 0.2), (x + 0).lerp_(x.flip(1), 0.3), F.threshold_(x + 0, 0.1, -0.2),
            (x + 0).addcmul_(x, x, value=2.0), torch.empty_like(x).fill_(3.0) * x,
            torch.triu(x[:, :, None] * x[:, None], 1).sum(1),
        ]  # fmt: skip
        return torch.stack([*parts, part], 1)
