"""Images in folders: files of any mode read as uint8 arrays, and a folder for each class as a dataset."""

from __future__ import annotations

from gradlab.data.images.folder import ImageFolder, image_folders
from gradlab.data.images.reading import EXTENSIONS, ImageError, check_image, image_array, read_image

__all__ = ["EXTENSIONS", "ImageError", "ImageFolder", "check_image", "image_array", "image_folders", "read_image"]
