"""Transforms: what is drawn, what they are called with, and that a loader gives the same images whatever its workers."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest

import gradlab as gl
from gradlab import transforms as T
from gradlab.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, WeightedRandomSampler, get_worker_info

# Every public class that changes single images, with arguments.
CALLS = {
    "CenterCrop": (7,), "ColorJitter": (0.4, 0.4, 0.4, 0.1), "Compose": ([T.Resize(8), T.RandomCrop(6)],), "ConvertImageDtype": (),
    "Each": (T.RandomCrop(6),), "ElasticTransform": (), "FiveCrop": (5,), "GaussianBlur": (3,), "GaussianNoise": (), "Grayscale": (),
    "Identity": (), "Lambda": (T.functional.invert,), "LinearTransformation": (gl.eye(3 * 12 * 16), gl.zeros(3 * 12 * 16)),
    "Normalize": ([0.5], [0.5]), "PILToTensor": (), "Pad": (2,), "RGB": (), "RandomAdjustSharpness": (2,), "RandomAutocontrast": (),
    "RandAugment": (), "TrivialAugmentWide": (),
    "RandomAffine": (30, (0.1, 0.2), (0.8, 1.2), 10), "RandomApply": ([T.Pad(1)],), "RandomChannelPermutation": (),
    "RandomChoice": ([T.Pad(1), T.Pad(2)],), "RandomCrop": (7,), "RandomEqualize": (), "RandomErasing": (), "RandomGrayscale": (),
    "RandomHorizontalFlip": (), "RandomInvert": (), "RandomOrder": ([T.Resize(8), T.RandomCrop(6)],), "RandomPerspective": (),
    "RandomPhotometricDistort": (), "RandomPosterize": (3,), "RandomResize": (5, 9), "RandomResizedCrop": (7,), "RandomRotation": (30,),
    "RandomSolarize": (0.5,), "RandomVerticalFlip": (), "RandomZoomOut": (), "Resize": (9,), "TenCrop": (5,), "ToDtype": (gl.float32, True),
    "ToImage": (), "ToPILImage": (), "ToPureTensor": (), "ToTensor": (),
}  # fmt: skip
SEVERAL = {"FiveCrop", "TenCrop"}
ELSEWHERE = {"Transform", "MixUp", "CutMix"}
BATCHES = {"Each"}  # of which it is about
WITH_PILLOW = {"ToPILImage"}
OF_ARRAYS = {"ToTensor"}


def made(name: str) -> T.Transform:
    return getattr(T, name)(*CALLS[name])


def test_every_class_is_tried():
    public = {name for name in dir(T) if inspect.isclass(getattr(T, name)) and issubclass(getattr(T, name), T.Transform)}
    assert public == set(CALLS) | ELSEWHERE


def photograph(*shape: int) -> gl.Tensor:
    return gl.from_numpy(np.random.default_rng(1).random((*shape, 3, 12, 16), np.float32))


@pytest.mark.parametrize("name", sorted(set(CALLS) - WITH_PILLOW - OF_ARRAYS))
class TestEach:
    def drawn(self, transform: T.Transform, image: object, seed: int = 3) -> object:
        gl.manual_seed(seed)
        return transform(image)

    def test_a_seed_decides(self, name):
        image = photograph(2) if name in BATCHES else photograph()
        first, second = (self.drawn(made(name), image) for _ in range(2))
        for a, b in zip(first, second) if name in SEVERAL else [(first, second)]:
            assert gl.equal(a, b)
        assert gl.equal(image, photograph(2) if name in BATCHES else photograph()), "the input is as it was"

    def test_batches_and_arrays_are_changed_alike(self, name):
        if name in BATCHES | SEVERAL | {"GaussianNoise"}:
            return
        one, batch = self.drawn(made(name), photograph()), self.drawn(made(name), photograph()[None].repeat(2, 1, 1, 1))
        assert gl.allclose(batch[1], one, atol=1e-6)
        array = self.drawn(made(name), photograph().numpy().transpose(1, 2, 0).copy())
        array = array.numpy() if isinstance(array, gl.Tensor) else array.transpose(2, 0, 1)
        assert np.allclose(array, one.numpy(), atol=1e-6)

    def test_labels_pass(self, name):
        image = photograph(2) if name in BATCHES else photograph()
        label = gl.tensor([1, 2])
        transform = made(name) if name != "Lambda" else T.Lambda(T.functional.invert, np.ndarray)
        found = self.drawn(transform, {"image": image, "rest": [label, "name", 3]})
        assert found["rest"][0] is label
        assert found["rest"][1:] == ["name", 3]
        assert self.drawn(transform, (image, 5))[1] == 5
        assert transform(image, label)[1] is label

    def test_copies_and_texts(self, name):
        transform = made(name)
        assert repr(transform).startswith(f"{name}(")
        for twin in (copy.deepcopy(transform), pickle.loads(pickle.dumps(transform))):
            assert type(twin) is type(transform)


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("name", ["RandomCrop", "RandomHorizontalFlip", "ToDtype", "Normalize", "RandomErasing", "Resize"])
def test_the_same_on_a_gpu(name):
    images = (photograph(2) * 255).byte() if name == "ToDtype" else photograph(2)
    transform = made(name)
    if hasattr(transform, "p"):
        transform.p = 1.0
    gl.manual_seed(3)
    expected = transform(images)
    gl.manual_seed(3)
    found = transform(images.cuda())
    assert found.is_cuda
    assert gl.allclose(found.cpu(), expected, atol=1e-6)


class TestWhatIsDrawn:
    def shares(self, draw, count=300):
        gl.manual_seed(0)
        return [draw() for _ in range(count)]

    @pytest.mark.parametrize("kind", [T.RandomHorizontalFlip, T.RandomVerticalFlip, T.RandomInvert])
    def test_probabilities(self, kind):
        image = gl.arange(4.0).reshape(1, 2, 2) / 4
        for p in (0.0, 0.3, 1.0):
            changed = self.shares(lambda p=p: not gl.equal(kind(p)(image), image))
            assert abs(np.mean(changed) - p) < 0.08

    def test_crops_come_from_everywhere(self):
        image = gl.arange(36.0).reshape(1, 6, 6)
        places = {tuple(divmod(int(x), 6)) for x in self.shares(lambda: T.RandomCrop(4)(image)[0, 0, 0].item())}
        assert places == {(i, j) for i in range(3) for j in range(3)}
        with pytest.raises(ValueError, match="8 x 8 is larger than the image, 6 x 6; pass pad_if_needed=True"):
            T.RandomCrop(8)(image)
        assert T.RandomCrop(8, pad_if_needed=True)(image).shape == (1, 8, 8)
        assert T.RandomCrop(8, padding=1)(image).shape == (1, 8, 8)

    def test_resized_crops_have_their_area_and_proportions(self):
        transform = T.RandomResizedCrop(4, scale=(0.2, 0.5), ratio=(0.5, 2.0))
        for params in self.shares(lambda: transform.make_params([gl.zeros(1, 100, 80)])):
            assert 0.19 < params["height"] * params["width"] / 8000 < 0.51
            assert 0.48 < params["width"] / params["height"] < 2.05
            assert 0 <= params["top"] <= 100 - params["height"]
            assert 0 <= params["left"] <= 80 - params["width"]
        middle = T.RandomResizedCrop(4, scale=(1.0, 1.0), ratio=(3.0, 3.0)).make_params([gl.zeros(1, 90, 90)])
        assert middle == {"top": 30, "left": 0, "height": 30, "width": 90}

    def test_jitter_is_within_bounds(self):
        transform = T.ColorJitter(brightness=0.5, contrast=(0.9, 1.1), hue=0.1)
        found = self.shares(lambda: transform.make_params([photograph()]))
        assert {tuple(params) for params in found} == {
            (a, b, c) for a in ("brightness", "contrast", "hue") for b in ("brightness", "contrast", "hue") for c in (
                "brightness", "contrast", "hue") if len({a, b, c}) == 3
        }  # fmt: skip
        for what, low, high in (("brightness", 0.5, 1.5), ("contrast", 0.9, 1.1), ("hue", -0.1, 0.1)):
            values = [params[what] for params in found]
            assert low <= min(values) < low + 0.1 * (high - low)
            assert high - 0.1 * (high - low) < max(values) <= high
        assert T.ColorJitter(brightness=2.0).brightness == (0.0, 3.0)

    def test_rotations_and_choices(self):
        assert all(-10 <= p["angle"] <= 10 for p in self.shares(lambda: T.RandomRotation(10).make_params([photograph()])))
        sizes = self.shares(lambda: T.RandomChoice([T.Pad(0), T.Pad(1)], p=[1, 3])(gl.zeros(1, 2, 2)).shape[1])
        assert abs(np.mean(np.array(sizes) == 4) - 0.75) < 0.08
        assert set(self.shares(lambda: T.RandomOrder([T.Pad(1), T.CenterCrop(2)])(gl.ones(1, 2, 2)).sum().item(), 30)) == {4.0}
        padded = self.shares(lambda: T.RandomApply([T.Pad(1), T.Pad(1)])(gl.zeros(1, 2, 2)))
        assert {tuple(x.shape) for x in padded} == {(1, 2, 2), (1, 6, 6)}

    def test_holes(self):
        gl.manual_seed(0)
        for value, levels in ((0.5, {0.5}), ((0.1, 0.2, 0.3), {0.1, 0.2, 0.3})):
            found = T.RandomErasing(p=1.0, value=value)(gl.ones(3, 20, 20))
            assert {round(v, 5) for v in np.unique(found.numpy()).tolist()} == levels | {1.0}
            assert 0.02 * 0.5 < (found[0] != 1).float().mean().item() < 0.34
        noise = T.RandomErasing(p=1.0, value="random")(gl.full((1, 20, 20), 7, dtype=gl.uint8))
        assert len(np.unique(noise.numpy())) > 4

    @pytest.mark.parametrize("name", sorted(T.RandAugment.table))
    def test_policies(self, name):
        """Each change at its weakest leaves an image as it is, or nearly; at its strongest it is another."""
        if name in ("AutoContrast", "Equalize", "Identity"):
            return
        image = (photograph() * 255).byte()
        for kind in (T.RandAugment, T.TrivialAugmentWide):
            strengths, signed = kind.table[name]
            policy, bins = kind(), strengths(31, 12, 16)
            assert gl.equal(policy._changed(image, name, float(bins[0])), image) or name == "Solarize"
            assert not gl.equal(policy._changed(image, name, float(bins[-1])), image)
            gl.manual_seed(0)
            drawn = [step for _ in range(200) for step in policy.make_params([image])["steps"] if step[0] == name]
            assert drawn
            assert signed == any(strength < 0 for _, strength in drawn)

    def test_each_image_of_a_batch(self):
        gl.manual_seed(0)
        images = gl.arange(4.0).reshape(1, 1, 2, 2).repeat(64, 1, 1, 1)
        alike, each = T.RandomHorizontalFlip()(images), T.Each(T.RandomHorizontalFlip())(images)
        assert len(np.unique(alike.numpy(), axis=0)) == 1
        assert len(np.unique(each.numpy(), axis=0)) == 2
        assert T.Each(T.Pad(1), T.CenterCrop(1))(np.zeros((5, 3, 3, 1))).shape == (5, 1, 1, 1)
        with pytest.raises(ValueError, match=r"takes a batch of images, not Tensor of shape \(1, 2, 2\)"):
            T.Each(T.Pad(1))(images[0])


class TestMixing:
    @pytest.mark.parametrize("kind", [T.MixUp, T.CutMix])
    def test_labels_are_mixed_as_images_are(self, kind):
        gl.manual_seed(0)
        images = gl.eye(4)[:, :, None, None].expand(4, 4, 16, 16).contiguous()  # the channel says which image
        labels = gl.tensor([0, 1, 2, 3])
        seen = set()
        for _ in range(20):
            mixed, shares = kind(num_classes=4)(images, labels)
            assert gl.allclose(mixed.mean((2, 3)), shares, atol=1e-5)
            assert gl.allclose(shares.sum(1), gl.ones(4), atol=1e-6)
            assert gl.allclose(shares.diagonal(), shares[0, 0].expand(4))
            seen.add(round(shares[0, 0].item(), 3))
        assert len(seen) > 10
        one_hot = gl.nn.functional.one_hot(labels, 4).float()
        again = kind()({"images": images, "labels": one_hot})
        assert gl.allclose(again["images"].mean((2, 3)), again["labels"], atol=1e-5)

    def test_what_is_refused(self):
        images, labels = gl.zeros(4, 1, 2, 2), gl.tensor([0, 1, 2, 3])
        for call, message in (
            (lambda: T.MixUp()(images, labels), "num_classes is needed"),
            (lambda: T.MixUp(num_classes=4)(images[0], labels), "takes a batch of images"),
            (lambda: T.CutMix(num_classes=4)(images, labels[:3]), "a tensor .4,. of classes"),
            (lambda: T.CutMix(num_classes=4)(images), "got no labels"),
            (lambda: T.MixUp(alpha=0), "alpha is positive"),
        ):
            with pytest.raises(ValueError, match=message):
                call()
        own = T.MixUp(num_classes=4, labels_getter=lambda batch: batch[1]["y"])(images, {"x": labels, "y": labels.clone()})
        assert own[1]["x"] is labels
        assert own[1]["y"].shape == (4, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: T.RandomHorizontalFlip(2), "p is from 0 to 1, not 2"),
        (lambda: T.Compose([]), "a list of transforms"),
        (lambda: T.Compose(T.Resize(3)), "a list of transforms"),
        (lambda: T.RandomChoice([T.Pad(1)], p=[0.5, 0.5]), "a probability for each of 1 transforms"),
        (lambda: T.ColorJitter(hue=0.6), "within -0.5 to 0.5"),
        (lambda: T.ColorJitter(brightness=-1), "not negative"),
        (lambda: T.RandomRotation((10, 0)), r"a pair \(from, to\)"),
        (lambda: T.RandomAffine(0, translate=(2, 0)), "two numbers from 0 to 1"),
        (lambda: T.RandomErasing(value="noise"), '"random"'),
        (lambda: T.Lambda(3), "takes a function"),
        (lambda: T.Grayscale(2), "1 or 3"),
        (lambda: T.RandAugment(magnitude=31), "magnitude is from 0 to 30"),
        (lambda: T.AutoAugment, "RandAugment or TrivialAugmentWide"),
        (lambda: T.ScaleJitter, "boxes"),
        (lambda: T.Resize("3"), "size is one number"),
        (lambda: T.RandomCrop(3, padding_mode="wrap"), "padding_mode is one of"),
        (lambda: T.Resize(3)("cat.png"), "takes images .*, not str"),
        (lambda: T.Resize(3)(gl.zeros(3)), "takes images .*, not Tensor of gradlab.float32 and shape"),
        (lambda: T.Resize(3)(np.zeros((4, 4), bool)), r"not ndarray of bool and shape \(4, 4\)"),
        (lambda: T.Transform()(photograph()), "has no transform"),
        (lambda: T.RandomHorizontalFlips, "did you mean RandomHorizontalFlip"),
    ],
)  # fmt: skip
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError, NotImplementedError, AttributeError), match=message):
        call()


# ---------------------------------------------------------------- in a loader


class Pictures(Dataset):
    """Images that are random themselves, in the dataset and by transforms."""

    transform = T.Compose([T.RandomCrop(4, padding=2), T.ColorJitter(0.5), T.RandomErasing(0.5, value="random")])

    def __len__(self):
        return 13

    def __getitem__(self, index):
        return self.transform(gl.full((1, 4, 4), 0.5)) + gl.rand(1, 4, 4) * 0.1, index


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for i in range(0 if info is None else info.id, 6, 1 if info is None else info.num_workers):
            yield Pictures.transform(gl.full((1, 4, 4), 0.5)), i


def by_index(loader) -> list:
    """Of two epochs: the images, in the order of their indices (which may be there more than once)."""
    found = []
    for _ in range(2):
        pairs = [(int(i), image.tolist()) for images, indices in loader for image, i in zip(images, indices)]
        found.append(sorted(pairs, key=lambda pair: pair[0]))
    return found


def loader_of(workers: int = 0, seed: int = 0, **options) -> DataLoader:
    gl.manual_seed(seed)
    return DataLoader(Pictures(), num_workers=workers, **{"batch_size": 4, "shuffle": True, **options})


class TestLoader:
    def test_the_same_images_for_any_number_of_workers(self):
        first = by_index(loader_of())
        assert first[0] != first[1], "each epoch has its own"
        assert len({str(image) for _, image in first[0]}) == 13, "and each sample"
        assert by_index(loader_of(seed=1)) != first
        for workers in (1, 2, 3):
            assert by_index(loader_of(workers)) == first
        assert by_index(loader_of(2, batch_size=3, persistent_workers=True)) == first

    def test_the_order_does_not_matter(self):
        assert by_index(loader_of(shuffle=False)) == by_index(loader_of(2, shuffle=False, batch_size=5))
        assert by_index(loader_of(shuffle=False))[0] == by_index(loader_of(batch_size=1))[0]

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_resumed_epoch(self, workers):
        whole = [images.tolist() for images, _ in loader_of()]
        loader = loader_of(workers)
        batches = iter(loader)
        begun = [next(batches)[0].tolist() for _ in range(2)]
        state = loader.state_dict()
        del batches
        gl.manual_seed(99)
        resumed = DataLoader(Pictures(), num_workers=2 - workers, batch_size=4, shuffle=True)
        resumed.load_state_dict(state)
        assert begun + [images.tolist() for images, _ in resumed] == whole

    def test_what_a_dataset_draws_moves_nothing_outside(self):
        loader = loader_of(shuffle=False)
        batches = iter(loader)
        state = gl.get_rng_state()
        list(batches)
        assert gl.equal(gl.get_rng_state(), state)

    def test_a_sample_that_comes_twice_is_drawn_for_twice(self):
        for sampler in (RandomSampler(range(13), replacement=True, num_samples=40), WeightedRandomSampler([1.0] * 13, 40), [3] * 40):
            results = []
            for workers in (0, 2):
                gl.manual_seed(0)
                loader = DataLoader(Pictures(), 4, sampler=sampler, num_workers=workers)
                results.append([image.tolist() for images, _ in loader for image in images])
            assert results[0] == results[1]
            assert len({str(image) for image in results[0]}) == 40

    def test_what_joins_samples_draws_too(self):
        def mixed(samples):
            return T.CutMix(num_classes=13)(*gl.utils.data.default_collate(samples))

        first, second = ([x.tolist() for x, _ in loader_of(workers, collate_fn=mixed)] for workers in (0, 2))
        assert first == second
        assert first != [x.tolist() for x, _ in loader_of()]

    def test_streams(self):
        gl.manual_seed(0)
        loaders = [DataLoader(Stream(), 2, num_workers=workers) for workers in (0, 1)]
        results = []
        for loader in loaders:
            gl.manual_seed(0)
            results.append(by_index(loader))
        assert results[0] == results[1]
        gl.manual_seed(0)
        split = by_index(DataLoader(Stream(), 2, num_workers=2))[0]
        assert len({str(image) for _, image in split}) == 6

    def test_single_samples_and_keys(self):
        class Named(Dataset):
            def __getitem__(self, key):
                return gl.rand(2)

        gl.manual_seed(0)
        first = [x.tolist() for x in DataLoader(Named(), None, sampler=["a", "b", "c"])]
        gl.manual_seed(0)
        assert [x.tolist() for x in DataLoader(Named(), None, sampler=["a", "b", "c"], num_workers=2)] == first
        assert len({str(x) for x in first}) == 3
