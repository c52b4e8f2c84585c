"""`gradlab train images folder/`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from gradlab.cli.arguments import Parser, positive_integer, share
from gradlab.cli.failure import Failure, chosen

SUMMARY = "a folder with a folder of images for each class, or train/ and val/, or mnist, fashion-mnist, cifar-10: predict the class"
# For the help; what is taken is the task\'s `defaults`.
USUAL = {"epochs": "by the number of images, 3 to 60", "batch": 64, "lr": 0.003}
MODELS = ("cnn", "resnet20", "mobilenet", "vit", "mlp")
AUGMENTATIONS = ("crop", "flip", "jitter")


def configure(parser: Parser) -> None:
    parser.add_argument("folder", nargs="?", help=SUMMARY.partition(":")[0])
    models = f"the network: {', '.join(MODELS)} (default: {MODELS[0]})"
    parser.add_argument("--model", type=partial(chosen, "model", known=MODELS), help=models)
    parser.add_argument("--size", type=positive_integer, metavar="PIXELS", help="side of the images (default: theirs, 64 at most)")
    parser.add_argument("--fit", choices=["crop", "stretch"], help="how images get that shape (default: crop)")
    parser.add_argument("--grey", action="store_true", help="leave the colours out")
    parser.add_argument(
        "--augment", metavar="A,B", help=f"how training images are changed, of {', '.join(AUGMENTATIONS)}, or none (default: crop, flip)"
    )
    parser.add_argument("--validation", type=share, metavar="SHARE", help="of the images is held out, unless there is val/ (default: 0.2)")
    parser.add_argument("--mirror", metavar="ADDRESS", help="a folder or an address that has the files of mnist and its like")
    parser.add_argument("--no-check", action="store_true", help="these may be other files of the same format")


def source(options: argparse.Namespace) -> str:
    if options.folder is None:
        raise Failure("name the folder that holds a folder of images for each class: gradlab train images FOLDER")
    return str(options.folder)


def data(options: argparse.Namespace) -> dict[str, Any]:
    if options.size is not None and options.size < 8:
        raise Failure(f"--size: at least 8 pixels, not {options.size}")
    found: dict[str, Any] = {"seed": options.seed or 0}
    given = {"model": options.model, "size": options.size, "fit": options.fit, "fraction": options.validation}
    found |= {name: value for name, value in given.items() if value is not None}
    found |= {"channels": 1} if options.grey else {}
    found |= {"data_dir": str(options.data_dir.absolute())} if options.data_dir else {}
    found |= {"mirror": options.mirror} if options.mirror else {}
    found |= {"check": False} if options.no_check else {}
    if options.augment is not None:
        names = [name.strip() for name in options.augment.split(",")]
        found["augment"] = [] if names == ["none"] else [chosen("augmentation", name, AUGMENTATIONS) for name in names]
    return found
