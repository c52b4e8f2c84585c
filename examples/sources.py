"""The data that the examples train on, as NumPy arrays and plain text, for any engine. Nothing is downloaded.

The images are the 8x8 digits that gradlab ships; the text was written for this file.
"""

from gradlab.data import digits, digits_split

VERSES = """
the rain came down on the quiet town
and washed the dust from the roofs of brown
the children ran to the windows to see
the river that rose by the old oak tree
a boat went by with a lantern lit
and the miller sat in the bow of it
he called to the folk on the bridge above
bring bread and blankets, bring what you love
the baker came with a sack on his back
the smith with a barrel, the priest with a stack
of books he had saved from the lower shelf
the mayor came last and he carried himself
by noon the water had reached the square
by two there were fish on the courthouse stair
by four it stopped and the sun looked in
and somebody started a tune on a tin
they danced on the hill till the stars were out
and nobody knew what the song was about
in the morning the river was back in its bed
the roofs were clean and the doors were red
and the town that had always been dusty and dry
was bright as a plate and smelled of the sky
""".strip()


def images():
    """Digits as float32 [n, 1, 8, 8] from 0 to 1 with int64 labels [n]: 1442 to train on, 355 to test on."""
    pixels, labels = digits()
    pixels = (pixels / 16).astype("float32")[:, None]
    train, test = digits_split()
    return (pixels[train], labels[train]), (pixels[test], labels[test])


def lines():
    """The lines of the verses, of 33 to 48 characters each."""
    return VERSES.split("\n")


def text():
    """All verses as one string."""
    return VERSES + "\n"
