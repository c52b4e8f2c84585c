"""A result shares memory with an argument exactly where PyTorch's does, can be written exactly where PyTorch's can, and a write reaches
exactly the other side of what is shared.

Twice over: every call of the catalogue, and calls whose arguments leave nothing to do (repeats of 1, pads of 0, the same shape or dtype),
where a copy is most easily forgotten. The tables hold without PyTorch; with it they are held against it.
"""

import re

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import CALLS, TORCH, parts

ARRAYS = {
    "x": np.arange(12.0).reshape(3, 4) / 7, "r": np.arange(4.0).reshape(1, 4), "lone": np.ones((1, 1)), "sq": 2 * np.eye(3),
    "e": np.zeros((0, 3)), "v": np.arange(4.0) / 3, "one": np.ones(1), "s": np.array(2.5), "l": np.arange(24.0).reshape(2, 3, 4),
    "c": np.arange(64.0).reshape(1, 4, 4, 4) / 5, "cc": np.arange(16.0).reshape(1, 1, 4, 4),
    "vol": np.arange(64.0).reshape(1, 1, 4, 4, 4), "k": np.arange(12).reshape(3, 4), "b": np.arange(12).reshape(3, 4) % 2 == 0,
}  # fmt: skip


def listed(text):
    return re.split(r"\s*;\s+", text.strip(" \n;"))


# Each result is memory of its own.
COPIES = listed("""
    T.nn.utils.rnn.unpad_sequence(x, T.tensor([3, 3, 3, 3])) ; T.nn.utils.rnn.pad_sequence([x]) ; T.utils.data.default_collate([x]) ;
    T.nn.utils.parameters_to_vector([v]) ; T.nn.utils.rnn.pack_sequence([x]).data ;
    x.repeat(1, 1) ; x.repeat(1, 1, 1) ; x.repeat(2, 1) ; x.repeat(1, 2) ; v.repeat(2, 1) ; v.repeat(1) ; s.repeat(1) ; s.repeat(2) ;
    s.repeat(()) ; x.repeat(2, 1, 1) ; lone.repeat(1, 3) ; lone.repeat(3, 1) ; r.repeat(2, 1) ; e.repeat(2, 1) ; x.repeat(0, 1) ;
    x.tile(1) ; x.tile(1, 1) ; x.tile(2, 1) ; x.tile(()) ; s.tile(()) ; T.tile(x, (1,)) ; T.tile(v, (2, 1)) ; s.tile(2) ;
    x.repeat_interleave(1) ; x.repeat_interleave(1, 0) ; x.repeat_interleave(1, 1) ; v.repeat_interleave(1) ; v.repeat_interleave(1, 0) ;
    s.repeat_interleave(1) ; one.repeat_interleave(2) ; lone.repeat_interleave(3, 0) ; lone.repeat_interleave(3, 1) ;
    s.repeat_interleave(3) ; v.repeat_interleave(2) ; x.repeat_interleave(T.tensor([1, 1, 1]), 0) ; v.repeat_interleave(T.tensor(1)) ;
    F.pad(x, (0, 0)) ; F.pad(x, (0, 0, 0, 0)) ; F.pad(x, ()) ; F.pad(c, (0, 0, 0, 0), "reflect") ; F.pad(c, (0, 0), "constant", 1.) ;
    F.pad(c, (0, 0, 0, 0), "replicate") ; F.pad(c, (0, 0, 0, 0), "circular") ; F.pad(x, (0, -1)) ; F.pad(x, (-1, 0)) ;
    F.pad(x, (-1, -1, 0, 0)) ; F.pad(l, (0, 0), "circular") ; F.pad(l, (0, 0), "reflect") ; F.pad(l, (0, 0), "replicate") ;
    F.pad(c, (-1, 0, 0, 0), "circular") ; F.pad(c, (-1, 0, 0, 0), "replicate") ; F.pad(c, (-1, -1, 0, 0), "reflect") ;
    F.pixel_shuffle(c, 1) ; F.pixel_unshuffle(c, 1) ; F.pixel_shuffle(c, 2) ; F.channel_shuffle(c, 1) ; F.channel_shuffle(c, 4) ;
    F.channel_shuffle(c, 2) ; F.pixel_unshuffle(cc, 1) ; F.pixel_unshuffle(cc, 2) ; F.pixel_unshuffle(cc, 4) ;
    F.pixel_shuffle(c[:, :, :1, :1], 2) ; F.channel_shuffle(cc, 1) ; T.cartesian_prod(v, one) ; T.cartesian_prod(v, v) ;
    T.combinations(v, 1) ; T.combinations(v, 2) ; T.combinations(v, 0) ; F.dropout(x, 1.) ; F.rrelu(x, 1., 1.) ; F.rrelu(x, 1., 1., True) ;
    x.to(x.dtype, copy=True) ; x.to(T.float64) ; x.double() ; k.int() ; x.t().contiguous() ; x.clone() ; T.asarray(x, copy=True) ;
    T.tensor(x) ; T.as_tensor(x, dtype=T.float64) ; x.nan_to_num() ; x.clamp(-100, 100) ; x.clamp(min=-100) ; k.round() ; k.floor() ;
    k.ceil() ; k.trunc() ; x.abs() ; x.relu() ; F.relu(x) ; F.relu6(x) ; F.hardtanh(x, -99, 99) ; F.leaky_relu(x, 1.) ;
    F.threshold(x, -1., 0.) ; x + 0 ; x * 1 ; x ** 1 ; x / 1 ; x - 0 ; k // 1 ; T.where(b, x, x) ; x.where(b, x) ;
    x.masked_fill(~b & b, 0) ; x.lerp(x, 0.) ; x.addcmul(x, x, value=0) ; x.add(x, alpha=0) ; k.fix() ; x.round(decimals=0) ; x.pow(1) ;
    x.float_power(1) ; x.double().float_power(1) ; T.maximum(x, x) ; x.fmin(x) ; x.sgn() ; F.elu(x) ; F.celu(x) ; F.hardshrink(x, 0.) ;
    F.softshrink(x, 0.) ; x.roll(0) ; x.roll(4, 1) ; x.roll(0, 0) ; x.roll((0, 0), (0, 1)) ; x.roll(12) ; s.roll(0) ; x.flip([]) ;
    x.flip(()) ; x.flip(0) ; one.flip(0) ; s.flip([]) ; x.fliplr() ; x.flipud() ; x.rot90(0) ; x.rot90(4) ; x.rot90(2) ; x.rot90(1) ;
    T.rot90(sq, 4) ; lone.rot90(1) ; lone.rot90(3) ; x.t().reshape(-1) ; x.t().flatten() ; x.t().ravel() ; sq.diag() ; v.diag() ;
    sq.tril(9) ; sq.triu(-9) ; sq.tril() ; T.cat([x]) ; T.cat([v, T.zeros(0)]) ; T.concat([x]) ; T.concatenate([x]) ; T.hstack([x]) ;
    T.hstack([s]) ; T.vstack([x]) ; T.vstack([v]) ; T.dstack([x]) ; T.dstack([l]) ; T.column_stack([x]) ; T.column_stack([v]) ;
    T.row_stack([x]) ; T.stack([x]) ; T.stack([s]) ; T.block_diag(x) ; T.block_diag(x, x) ; x[[0, 1, 2]] ; x[b] ; x[T.tensor([0])] ;
    x[True] ; x[b & b] ; x[range(3)] ; T.einsum("ij->i", x) ; T.einsum(",->", s, s) ; T.einsum("i,->i", v, s) ; T.einsum("ij,jk", sq, sq) ;
    T.einsum("ij->", lone) ; T.einsum("i->", one) ; T.einsum("ij->j", r) ; T.einsum("ij->i", lone) ; T.einsum("ii->", lone) ; x.sum(()) ;
    x.sum([]) ; x.mean(()) ; s.sum() ; s.sum(()) ; x.sum(dim=()) ; x.amax(()) ; s.amax() ; s.mean() ; s.prod() ; r.sum(0) ; r.mean(0) ;
    r.amax(0) ; r.amin(0) ; r.prod(0) ; r.max(0) ; r.min(0) ; r.median(0) ; r.mode(0) ; r.kthvalue(1, 0) ; r.logsumexp(0) ; r.cumsum(0) ;
    r.cumprod(0) ; r.cummax(0) ; r.cummin(0) ; r.logcumsumexp(0) ; s.cumsum(0) ; s.cumprod(0) ; r.norm(dim=0) ; s.norm() ; s.max() ;
    s.min() ; s.median() ; r.nansum(0) ; r.nanmean(0) ; s.nansum() ; r.sort(0) ; s.sort() ; r.topk(1, 0) ; s.topk(1) ; s.max(0) ; s.min(0) ;
    s.sum(0) ; s.mean(0) ; s.prod(0) ; s.mode() ; s.kthvalue(1) ; s.cummax(0) ; s.aminmax() ; r.aminmax(dim=0) ; T.quantile(r, 1., 0) ;
    r.nanmedian(0) ; s.amin() ; r.sum((0,), keepdim=True) ; r.mean((0,), keepdim=True) ; r.diff(n=0) ; r.diff(0) ; v.diff(n=0) ;
    T.diff(v, n=0) ; r.argsort() ; x.sum_to_size((1, 4)) ; s.sum_to_size(()) ; F.interpolate(c, (4, 4)) ;
    F.interpolate(c, (4, 4), mode="bilinear") ; F.interpolate(c, scale_factor=1) ; F.interpolate(c, scale_factor=1., mode="bicubic") ;
    F.interpolate(c, (4, 4), mode="area") ; F.interpolate(l, 4, mode="linear") ; F.interpolate(l, 4) ;
    F.interpolate(vol, (4, 4, 4), mode="trilinear") ; F.interpolate(c, (4, 4), mode="nearest-exact") ;
    F.interpolate(c, (4, 4), mode="bilinear", antialias=True) ; F.upsample(c, (4, 4)) ;
    F.interpolate(c, (4,4), mode="bilinear", align_corners=True) ; F.adaptive_avg_pool2d(c, 4) ; F.adaptive_avg_pool2d(c, (4, None)) ;
    F.adaptive_avg_pool1d(l, 4) ; F.adaptive_avg_pool3d(vol, 4) ; F.adaptive_max_pool2d(c, 4) ; F.adaptive_max_pool1d(l, 4) ;
    F.adaptive_max_pool3d(vol, 4) ; F.avg_pool2d(c, 1) ; F.max_pool2d(c, 1) ; F.avg_pool1d(l, 1) ; F.max_pool1d(l, 1) ;
    F.max_pool3d(vol, 1) ; F.avg_pool3d(vol, 1) ; F.lp_pool2d(c, 2, 1) ; F.lp_pool1d(l, 1., 1) ; F.adaptive_avg_pool2d(cc[..., :1, :1], 1) ;
    F.adaptive_avg_pool1d(l[..., :1], 1) ; F.normalize(x, dim=0) ; F.normalize(x, p=1.) ; F.softmax(r, 0) ; F.log_softmax(r, 0) ;
    F.layer_norm(x, (4,)) ; F.one_hot(k) ; F.embedding(k.long() % 3, x) ; F.unfold(c, 1) ; F.fold(c.reshape(1, 4, 16), (4, 4), 1) ;
    F.unfold(cc, 4) ; F.unfold(cc, 1) ; F.fold(cc.reshape(1, 1, 16), (4, 4), 1) ; F.fold(cc.reshape(1, 16, 1), (4, 4), 4) ;
    F.local_response_norm(c, 1, alpha=0.) ; F.glu(x) ; F.linear(x, T.eye(4)) ; F.grid_sample(cc, T.zeros(1, 4, 4, 2)) ;
    F.cosine_similarity(x, x) ; F.gumbel_softmax(x) ; F.mse_loss(s, s, reduction="none") ; F.l1_loss(x, x, reduction="none") ;
    F.max_unpool2d(cc, k.new_zeros((1, 1, 4, 4)).long() + T.arange(16).reshape(1, 1, 4, 4), 1) ; x.index_select(0, T.tensor([0, 1, 2])) ;
    x.gather(0, k.long() * 0) ; x.take(T.tensor([0])) ; x.masked_select(x == x) ; x.index_add(0, T.tensor([0]), x[:1], alpha=0) ;
    x.index_fill(0, T.zeros(0).long(), 0.) ; x.scatter(0, T.zeros(0, 0).long(), x) ; x.scatter_add(0, T.zeros(0, 0).long(), x) ;
    x.index_copy(0, T.zeros(0).long(), x[:0]) ; x.index_put((T.zeros(0).long(),), x[:0]) ; x.put(T.zeros(0).long(), x[0, :0]) ;
    x.masked_scatter(b & ~b, x) ; x.select_scatter(x[0], 0, 0) ; x.slice_scatter(x) ; x.slice_scatter(x[:0], 0, 0, 0) ;
    sq.diagonal_scatter(sq.diagonal()) ; x.scatter_reduce(0, T.zeros(0, 0).long(), x, "sum") ;
    x.index_reduce(0, T.zeros(0).long(), x[:0], "amax") ; v.take_along_dim(T.arange(4)) ; sq.matrix_power(1) ; sq.matrix_power(0) ;
    T.linalg.matrix_power(sq, 1) ; T.linalg.multi_dot([sq, sq]) ; T.chain_matmul(sq) ; T.chain_matmul(sq, sq) ; sq @ T.eye(3) ; v.dot(v) ;
    v.outer(one) ; T.kron(x, one) ; T.kron(x, lone) ; T.tensordot(x, s, 0) ; T.inner(s, s) ; T.inner(v, s) ; T.outer(v, v) ;
    T.linalg.norm(s) ; T.linalg.vector_norm(s) ; T.linalg.vector_norm(r, dim=0) ; T.linalg.cross(sq, sq) ; sq.trace() ; lone.trace() ;
    lone.det() ; lone.inverse() ; lone.logdet() ; sq.inverse() ; T.linalg.inv(sq) ; T.linalg.pinv(lone) ; T.linalg.cholesky(lone) ;
    T.cdist(x, x) ; T.addmm(x, sq, x, beta=1, alpha=0) ; T.baddbmm(l, T.zeros(2, 3, 3), l) ; T.vander(v, 1) ; T.linalg.vander(v) ;
    T.trapezoid(v) ; T.cov(v) ; T.corrcoef(one) ; T.corrcoef(v) ; T.renorm(x, 2, 0, 1e9) ; x.renorm(2, 0, 1e9) ; T.bincount(v.long()) ;
    T.histc(v) ; T.cumulative_trapezoid(one) ; T.linalg.tensorinv(lone, 1) ; T.linalg.matrix_exp(lone) ; v.unique() ;
    v.unique_consecutive() ; v.nonzero() ; v.argwhere() ; T.searchsorted(v, v) ; T.bucketize(v, v) ; T.isin(v, v) ; v.sort() ;
    v.sort(stable=True) ; v.msort() ; v.topk(4) ; v.argsort() ; v.logaddexp(v) ; T.special.logit(T.sigmoid(x)) ; x.new_tensor(x) ;
    T.empty_like(x) ; T.zeros_like(x) ; x.new_zeros(3, 4) ; T.clone(x) ; T.fill(x, 1.) ; T.full_like(x, 1) ; x.clip(-99, 99) ;
    T.clamp_min(x, -99) ; T.clamp_max(x, 99) ; x.copysign(x) ; T.ldexp(x, k * 0) ; T.deg2rad(x) ; x.nextafter(x) ; T.rsub(x, x) ;
    T.combinations(v, 4) ; x.cumsum(0) ; k.short() ; x.half() ; x.half().half() ; x.bfloat16().bfloat16() ; x.half().to(T.half) ;
    x.sum(0, keepdim=True) ; r.expand(3, 4).contiguous() ; r.expand(1, 4).clone() ; T.nn.ZeroPad2d(0)(c) ; T.nn.ReflectionPad2d(0)(c) ;
    T.nn.CircularPad2d(0)(c) ; T.nn.ConstantPad2d(0, 1.)(c) ; T.nn.ReplicationPad2d(0)(c) ; T.nn.PixelShuffle(1)(c) ;
    T.nn.PixelUnshuffle(1)(c) ; T.nn.ChannelShuffle(1)(c) ; T.nn.Upsample(scale_factor=1)(c) ; T.nn.MaxPool2d(1)(c) ;
    T.nn.Hardtanh(-99, 99)(x) ; T.nn.ReLU()(x) ; T.nn.Threshold(-1, 0)(x) ; T.nn.LeakyReLU(1.)(x) ; T.nn.CosineSimilarity()(x, x) ;
    T.nn.Fold((4, 4), 1)(c.reshape(1, 4, 16)) ; T.nn.Unfold(1)(c) ; T.nn.Softmax2d()(c) ; T.nn.Softmax(0)(r)
""")

# Each result is the argument's memory, and can be written.
VIEWS = listed("""
    T.utils.data.TensorDataset(x)[0] ; T.utils.data.default_convert(x) ; T.nn.ParameterList([x])[0] ; T.nn.ParameterDict({"a": x})["a"] ;
    T.func.functional_call(T.nn.Identity(), {}, (x,)) ;
    T.broadcast_tensors(x, x) ; T.broadcast_tensors(x, k) ; T.broadcast_tensors(x) ; T.broadcast_to(x, (3, 4)) ; x.expand(3, 4) ;
    x.expand_as(x) ; x.expand(-1, -1) ; s.expand(()) ; s.expand(1) ; x.expand(1, 3, 4) ; T.meshgrid(v, indexing="ij") ;
    T.cartesian_prod(v) ; F.dropout(x, 0.) ; F.dropout(x, 0.5, False) ; F.dropout(x, 0., False) ; F.dropout2d(c, 0.) ;
    F.dropout2d(c, .5, False) ; F.dropout1d(l, 0.) ; F.dropout1d(l, 0.3, False) ; F.dropout3d(vol, 0.) ; F.dropout3d(vol, .4, False) ;
    F.alpha_dropout(x, 0.) ; F.alpha_dropout(x, 0.3, False) ; F.feature_alpha_dropout(c, 0.) ; F.feature_alpha_dropout(c, .2, False) ;
    x.to(x.dtype) ; x.to("cpu") ; x.to(x) ; x.type(T.float32) ; x.type_as(x) ; x.float() ; k.long() ; b.bool() ; x.cpu() ; x.contiguous() ;
    x.detach() ; x.data ; x.requires_grad_(False) ; v.t() ; x.t() ; x.T ; v.T ; s.T ; x.mT ; x.H ; s.H ; x.mH ; x.adjoint() ; x.real ;
    x.resolve_conj() ; x.resolve_neg() ; x.conj() ; T.conj(x) ; T.real(x) ; x.positive() ; +x ; T.positive(x) ; T.as_tensor(x) ;
    T.asarray(x) ; T.as_tensor(x, dtype=x.dtype) ; x.squeeze() ; x.squeeze(0) ; x.squeeze(()) ; s.squeeze() ; x.unsqueeze(0) ;
    x.reshape(3, 4) ; x.reshape(-1) ; x.t().reshape(4, 3) ; x.view(3, 4) ; x.view_as(x) ; x.flatten() ; v.flatten() ; s.flatten() ;
    x.flatten(0, 0) ; x.flatten(1) ; x.ravel() ; v.ravel() ; s.ravel() ; x.unflatten(1, (4,)) ; x.unflatten(1, (2, 2)) ; x.permute(0, 1) ;
    x.transpose(0, 0) ; x.swapaxes(0, 1) ; x.movedim(0, 0) ; x.movedim((), ()) ; x.moveaxis(0, 1) ; x.narrow(0, 0, 3) ; x.select(0, 0) ;
    x.unfold(0, 3, 1) ; x.diagonal() ; T.diagonal(sq) ; T.linalg.diagonal(sq) ; T.atleast_1d(x) ; T.atleast_1d(s) ; T.atleast_2d(v) ;
    T.atleast_2d(x) ; T.atleast_3d(l) ; T.atleast_3d(x) ; T.atleast_1d(x, s) ; T.atleast_1d((x, s)) ; T.atleast_3d(s) ; x.split(3) ;
    x.split([3]) ; x.chunk(1) ; x.tensor_split(1) ; x.unbind() ; one.unbind() ; x.hsplit(1) ; x.vsplit(1) ; l.dsplit(1) ;
    x.split_with_sizes([3]) ; list(x) ; x[...] ; x[:] ; x[()] ; s[()] ; s[...] ; x[0] ; x[:, None] ; x[0:3] ; x[::2] ; x[None] ;
    x[T.tensor(0)] ; x[0, T.tensor(1)] ; x[:, :] ; x[np.int64(1)] ; x[slice(None), 0] ; T.einsum("ij->ij", x) ; T.einsum("ij->ji", x) ;
    T.einsum("i->i", v) ; T.einsum("ii->i", sq) ; T.einsum("...->...", x) ; T.einsum("ab->ba", r) ; x.sum_to_size(3, 4) ; x.view(-1, 4) ;
    x.fill_diagonal_(1.) ; x.masked_fill_(b, 1.) ; T.detach(x) ; T.split(x, 3) ; T.squeeze(x) ; x.expand(3, 4).contiguous() ;
    T.nn.Parameter(x) ; T.nn.Buffer(x) ; T.Tensor(x) ; x.view(x.shape).squeeze() ; T.nn.Identity()(x) ; T.nn.Flatten(0)(v) ;
    T.nn.Flatten()(x) ; T.nn.Unflatten(1, (2, 2))(x) ; T.nn.Dropout(0.)(x) ; T.nn.Dropout(.5).eval()(x) ; T.nn.Sequential()(x) ;
    T.nn.Dropout2d(0.)(c) ; T.nn.AlphaDropout(0.)(x)
""")

# Which results may be written of those that are the arguments' memory, but hold some element of it more than once.
REPEATED = {
    "r.expand(3, 4)": [False], 'T.meshgrid(v, v, indexing="ij")': [False, False], "T.broadcast_tensors(x, v)": [True, False],
    'T.meshgrid(v, one, indexing="ij")': [True, False], 'T.meshgrid(one, v, indexing="ij")': [False, True],
    'T.meshgrid(one, v, indexing="xy")': [False, True], "r.expand_as(x)": [False], "x[:1].expand(2, 1, 4)": [False],
    "T.broadcast_to(v, (1, 4))": [True], "s.expand(2, 2)": [False], "lone.expand(1, 1, 1)": [True], "e.expand(2, 0, 3)": [True],
}  # fmt: skip
EXPECTED = dict.fromkeys(COPIES, (False, None)) | dict.fromkeys(VIEWS, (True, None))
EXPECTED |= {code: (not code.startswith("e."), writable) for code, writable in REPEATED.items()}

# Calls of the catalogue whose result may be memory of an argument; of those with a number only this call.
SHARING = set(listed("""
    gl.as_strided ; Tensor.as_strided ;
    gl.adjoint ; gl.as_tensor-0 ; gl.asarray-0 ; gl.atleast_1d ; gl.atleast_2d ; gl.atleast_3d ; gl.broadcast_tensors ; gl.broadcast_to ;
    gl.chunk ; gl.conj ; gl.conj_physical ; gl.resolve_conj ; gl.resolve_neg ; gl.dropout ; gl.alpha_dropout ; gl.feature_dropout ;
    gl.feature_alpha_dropout ; gl.unsafe_chunk ; gl.unsafe_split ; gl.unsafe_split_with_sizes ;
    Tensor.unsafe_chunk ; Tensor.unsafe_split ; Tensor.unsafe_split_with_sizes ; Tensor.pin_memory ;
    gl.detach ; gl.diagonal ; gl.dsplit ; gl.flatten ; gl.from_dlpack ; gl.hsplit ; gl.meshgrid ; gl.moveaxis ;
    gl.movedim ; gl.narrow ; gl.permute ; gl.positive ; gl.ravel ; gl.real ; gl.reshape ; gl.select ; gl.split ; gl.split_with_sizes ;
    gl.squeeze ; gl.swapaxes ; gl.swapdims ; gl.t ; gl.tensor_split ; gl.transpose ; gl.unbind ; gl.unflatten ; gl.unsqueeze ; gl.vsplit ;
    linalg.diagonal ; F.alpha_dropout-0 ; F.dropout-1 ; F.feature_alpha_dropout-0 ; Tensor.H ; Tensor.T ; Tensor.__getitem__-0 ;
    Tensor.__getitem__-1 ; Tensor.__getitem__-4 ; Tensor.__iter__ ; Tensor.__pos__ ; Tensor.adjoint ; Tensor.broadcast_to ; Tensor.chunk ;
    Tensor.conj ; Tensor.conj_physical ;
    Tensor.contiguous ; Tensor.cpu ; Tensor.data ; Tensor.detach ; Tensor.diagonal ; Tensor.dsplit ; Tensor.expand ;
    Tensor.expand_as ; Tensor.flatten ; Tensor.float ; Tensor.hsplit ; Tensor.mH ; Tensor.mT ; Tensor.moveaxis ; Tensor.movedim ;
    Tensor.narrow ; Tensor.permute ; Tensor.positive ; Tensor.ravel ; Tensor.real ; Tensor.to_dense ; Tensor.reshape ; Tensor.reshape_as ;
    Tensor.resolve_conj ; Tensor.resolve_neg ; Tensor.select ; Tensor.split ; Tensor.split_with_sizes ; Tensor.squeeze ; Tensor.swapaxes ;
    Tensor.swapdims ; Tensor.t ; Tensor.tensor_split ; Tensor.to-1 ; Tensor.to-2 ; Tensor.to-4 ; Tensor.transpose ; Tensor.type_as-1 ;
    Tensor.unbind ; Tensor.unflatten ; Tensor.unfold ; Tensor.unsqueeze ; Tensor.view ; Tensor.view_as ; Tensor.vsplit
"""))


def memory(tensor):
    if isinstance(tensor, gl.Tensor):
        return tensor._array
    tensor = tensor.detach()
    return (tensor.view(TORCH.int16) if tensor.dtype == TORCH.bfloat16 else tensor).resolve_conj().numpy()


def shared(results, arguments):
    """Of each result the numbers of the arguments whose memory it shares."""
    return [[i for i, a in enumerate(arguments) if np.shares_memory(memory(r), memory(a))] for r in results]


def ran(engine, code, device="cpu"):
    """The tensors that `code` may name, and its results."""
    names = {"T": engine, "F": engine.nn.functional, "np": np}
    named = {n: engine.tensor(a, dtype=engine.float32 if a.dtype == np.float64 else None, device=device) for n, a in ARRAYS.items()}
    return list(named.values()), parts(eval(code, names | named))


def written(engine, result):
    """Whether another value could be written to it."""
    try:
        with engine.no_grad():
            if result.dtype == engine.bool:
                result.logical_not_()
            else:
                result.mul_(2).add_(1)
    except RuntimeError:
        return False
    return True


def values(tensors):
    return [memory(t).copy() for t in tensors]


def changed(before, after):
    return [a.tobytes() != b.tobytes() for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize("code", EXPECTED)
def test_memory_is_shared_where_the_table_says(code):
    shares, writable = EXPECTED[code]
    given, results = ran(gl, code)
    for i, (result, found) in enumerate(zip(results, shared(results, given), strict=True)):
        assert (found != []) == shares
        before = values(given)
        assert written(gl, result) == (writable is None or writable[i])
        if shares and (writable is None or writable[i]):
            assert changed(before, values(given)) == [n in found for n in range(len(given))]
        else:
            assert not any(changed(before, values(given)))
    assert results


@pytest.mark.parametrize("code", [*COPIES, *VIEWS])
def test_a_write_to_an_argument_reaches_what_is_its_memory(code):
    shares, _ = EXPECTED[code]
    given, results = ran(gl, code)
    before = values(results)
    for argument in given:
        assert written(gl, argument)
    assert changed(before, values(results)) == [shares and result.numel() > 0 for result in results]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", EXPECTED)
def test_the_table_is_pytorchs(code):
    found = []
    for engine in (gl, TORCH):
        given, results = ran(engine, code)
        same = [[n for n, a in enumerate(given) if a is r] for r in results]
        among = [[np.shares_memory(memory(a), memory(b)) for a in results] for b in results]
        found.append((shared(results, given), same, among, [written(engine, r) for r in results], [tuple(r.shape) for r in results]))
    assert found[0] == found[1]


ON_THE_GPU = [
    *REPEATED, "x.repeat(1, 1)", "x.tile(1)", "v.repeat_interleave(1)", "F.pixel_shuffle(c, 1)", 'F.pad(c, (0, 0, 0, 0), "reflect")',
    "x.expand(3, 4)", "T.broadcast_tensors(x, x)", "x.contiguous()", "x.reshape(-1)", "x.t().reshape(-1)", "x.clone()", "+x",
]  # fmt: skip


@pytest.mark.parametrize("code", ON_THE_GPU)
def test_the_same_on_the_gpu(cuda, code):
    shares, writable = EXPECTED[code]
    given, results = ran(gl, code, "cuda")
    for i, result in enumerate(results):
        before = values([t.cpu() for t in given])
        writes = writable is None or writable[i]
        assert written(gl, result) == writes
        assert any(changed(before, values([t.cpu() for t in given]))) == (shares and writes)


LOOKED_AT = [call for call in CALLS if "in_place" not in call.marks]


@pytest.mark.parametrize("call", LOOKED_AT, ids=repr)
def test_calls_of_the_catalogue(call):
    args, options = call.tensors()
    given = parts([*args, *options.values()])
    results = parts(call.on(args, options))
    found = shared(results, given)
    assert any(found) == bool(SHARING & {call.name, f"{call.name}-{call.number}"})
    before = values(given)
    reached = [written(gl, r) and r.numel() > 0 for r in results]
    touched = {i for numbers, wrote in zip(found, reached, strict=True) if wrote for i in numbers}
    assert changed(before, values(given)) == [i in touched for i in range(len(given))]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [call for call in CALLS if call.reference is not None], ids=repr)
def test_calls_of_the_catalogue_share_as_pytorchs(call):
    found = []
    for engine, tensors, function in ((gl, call.tensors, None), (TORCH, call.reference_tensors, call.reference)):
        try:
            args, options = tensors(engine.float32)
            results = parts(call.on(args, options, function))
        except RuntimeError:  # PyTorch's float_power_ refuses what it cannot keep
            assert engine is TORCH and "float_power_" in call.name
            return
        given = parts([*args, *options.values()])
        found.append((shared(results, given), [written(engine, r) for r in results if r.numel()]))
    assert found[0] == found[1]


@pytest.mark.parametrize("call", [c for c in CALLS if not c.marks & {"plain", "making", "integer", "no_gradient"}], ids=repr)
def test_gradients_are_memory_of_their_own(call):
    for create_graph in (False, True):
        args, options = call.tensors(gl.float64, requires_grad=True)
        leaves = [t for t in parts([*args, *options.values()]) if t.requires_grad]
        result = next(r for r in parts(call.on(args, options)) if r.requires_grad)
        start = gl.ones_like(result, requires_grad=True)
        try:
            result.backward(start, create_graph=create_graph)
        except NotImplementedError:  # igamma by its first argument, said to be in its message
            return
        gradients = [t.grad for t in leaves if t.grad is not None]
        assert not any(shared(gradients, [start, result, *leaves]))
        assert shared(gradients, gradients) == [[i] if g.numel() else [] for i, g in enumerate(gradients)]


def test_the_tables_name_calls():
    known = {call.name for call in LOOKED_AT} | {f"{call.name}-{call.number}" for call in LOOKED_AT}
    assert known >= SHARING
    assert len(EXPECTED) > 500, len(EXPECTED)
