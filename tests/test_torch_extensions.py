"""torchvision's operators of boxes and regions are gradlab's; the modules that load its own hold nothing; all else is read as installed."""

import subprocess
import sys

FILES = {
    "__init__.py": "from . import extension, _meta_registrations, _autograd_registrations, ops, models\n",
    "extension.py": "import torch\nraise OSError('libtorch.so is missing')\n",
    "_meta_registrations.py": "import torch\n@torch.library.register_fake('torchvision::nms')\ndef nms(): pass\n",
    "_autograd_registrations.py": "import torch\nkeys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)\n",
    "ops/__init__.py": (
        "import torch\nfrom torch import fx, Tensor\nfrom torch.jit.annotations import BroadcastingList2\n"
        "from ._register_onnx_ops import _register_custom_op\nfrom ..extension import _assert_has_ops, _has_ops\n"
        "@torch.jit._script_if_tracing\ndef area(boxes: Tensor, size: BroadcastingList2[int] = (1, 1)):\n"
        "    return (boxes[:, 2:] - boxes[:, :2]).prod(1)\n"
        "def nms(boxes, scores, most):\n    _assert_has_ops()\n    return torch.ops.torchvision.nms(boxes, scores, most)\n"
        "def pool(x, boxes):\n    return torch.ops.torchvision.roi_pool(x, boxes, 1.0, 1, 2)\n"
        "def means(x, boxes):\n    return torch.ops.torchvision.ps_roi_pool(x, boxes, 1.0, 1, 2)[0]\n"
        "def align(x, boxes):\n    return torch.ops.torchvision.roi_align(x, boxes, 1.0, 1, 2, 1, False)\n"
        "def apart(x, boxes):\n    return torch.ops.torchvision.ps_roi_align(x, boxes, 1.0, 1, 2, 1)[0]\n"
        "def bent(x, w, at, m, b):\n    return torch.ops.torchvision.deform_conv2d(x, w, at, m, b, 1, 2, 0, 0, 1, 1, 1, 1, False)\n"
        "fx.wrap('area')\n_register_custom_op()\n"
    ),
    "ops/_register_onnx_ops.py": "from torch.onnx import symbolic_opset11 as opset11\n",
    "models/__init__.py": "from . import quantization\nfrom torch.hub import load_state_dict_from_url, _get_torch_home\n",
    "models/quantization/__init__.py": "from torch.ao.quantization import QuantStub\n",
}
PROGRAM = """
import gradlab.as_torch
import torch, torchvision
from torchvision import ops
from torch.utils.model_zoo import load_url, tqdm
print(ops.area(torch.tensor([[0, 0, 2, 3]])).tolist(), ops._has_ops())
print(ops.nms(torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1]]), torch.tensor([0.1, 0.2]), 0.5).tolist())
x, boxes = torch.arange(16.0).reshape(1, 1, 2, 8), torch.tensor([[0.0, 0, 0, 4, 1]])
most, places = ops.pool(x, boxes)
print(most.flatten().tolist(), places.flatten().tolist(), ops.align(x, boxes).flatten().tolist())
print(ops.means(x.reshape(1, 2, 2, 4), boxes).flatten().tolist(), ops.apart(x.reshape(1, 2, 2, 4), boxes).flatten().tolist())
print(ops.bent(x, torch.ones(1, 1, 1, 1), torch.zeros(1, 2, 2, 4), torch.zeros(0), torch.ones(1)).tolist())
print(hasattr(torch.ops.torchvision, "box_iou_rotated"))
"""


def test_torchvision_as_it_is_installed(tmp_path):
    for name, content in FILES.items():
        file = tmp_path / "torchvision" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[6] True",
        "[1]",
        "[10.0, 12.0] [10, 12] [5.0, 7.0]",
        "[0.5, 10.0] [0.5, 10.5]",
        "[[[[1.0, 3.0, 5.0, 7.0], [9.0, 11.0, 13.0, 15.0]]]]",
        "False",
    ]
