"""Models of gradlab.models that draw pictures, trained on digits: their losses, and what a classifier says of the samples."""

from __future__ import annotations

import numpy as np
import pytest
from model_data import drawn, images
from model_recipes import RECIPES, Training, looks

import gradlab as gl

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def trained():
    found = {}

    def of(name):
        if name not in found:
            with gl.random.fork_rng():
                gl.manual_seed(0)
                training = Training(RECIPES[name], gl, RECIPES[name].model(gl.models))
                losses = training.run(RECIPES[name].steps, gl.compile(training.step))
            found[name] = training, np.array([loss.item() for loss in losses])
        return found[name]

    return of


@pytest.mark.parametrize("name", ["vae", "dcgan", "ddpm"])
def test_it_reaches_its_result(trained, name):
    training, losses = trained(name)
    result = training.result()
    assert np.isfinite(losses).all() and training.recipe.least <= result <= training.recipe.most, result


def samples(name, model):
    """200 pictures with ink as 1."""
    with gl.random.fork_rng():
        gl.manual_seed(1)
        if name == "vae":
            return model.sample(200).numpy()
        return (model.sample(200).numpy() + 1) / 2 if name == "dcgan" else (model.sample(200, steps=50).numpy() + 1) / 2


def test_how_real_digits_and_noise_look():
    alike, distance, kinds = looks(images().held_x)
    assert alike > 0.95 and distance == 1 and kinds == 10
    alike, distance, _ = looks(np.random.default_rng(0).random((200, 1, 8, 8)))
    assert alike < 0.3 and distance > 3


@pytest.mark.parametrize(("name", "share", "far"), [("vae", 0.5, 1.5), ("dcgan", 0.45, 2.0), ("ddpm", 0.55, 1.6)])
def test_samples_look_like_digits(trained, name, share, far):
    training, _ = trained(name)
    training.model.eval()
    pictures = samples(name, training.model)
    assert pictures.shape == (200, 1, 8, 8) and pictures.min() >= -1e-6 and pictures.max() <= 1 + 1e-6
    alike, distance, kinds = looks(pictures)
    assert alike > share and distance < far and kinds == 10, (alike, distance, kinds)
    real = images().held_x
    assert np.corrcoef(pictures.mean(0).ravel(), real.mean(0).ravel())[0, 1] > 0.9
    assert 0.4 < pictures.std(0).mean() / real.std(0).mean() < 1.2


def test_the_vae_codes_digits(trained):
    """Of eight numbers most pictures are drawn again so well that no other of fifty is nearer; one in fifty were chance."""
    model = trained("vae")[0].model.eval()
    x = gl.from_numpy(images().held_x[:50])
    with gl.no_grad():
        drawn_again = model.decode(model.encode(x)[0]).sigmoid()
        distance = gl.cdist(drawn_again.flatten(1), x.flatten(1))
    assert (distance.argmin(1) == gl.arange(50)).float().mean() > 0.4


def test_gan_losses_stay_sane(trained):
    """The two networks' losses added: two coins' is 2.08, and far less would be a discriminator that has won."""
    _, losses = trained("dcgan")
    assert 1.5 < losses[-100:].mean() < 3.5 and losses.max() < 12


def test_a_gan_learns_with_two_steps_of_its_own():
    with gl.random.fork_rng():
        gl.manual_seed(0)
        gan = gl.models.DCGAN(8, 1, latent=4, width=8)
    real, z = gl.from_numpy(2 * images().x[:16] - 1), gl.from_numpy(drawn(16, 4))
    gan.discriminator_loss(real, z).backward()
    assert all(p.grad is None for p in gan.generator.parameters())
    assert all(p.grad is not None for p in gan.discriminator.parameters())
    gan.generator_loss(16, z).backward()
    assert all(p.grad is not None for p in gan.generator.parameters())
