"""torchvision's modules that load compiled operators hold nothing under gradlab; the rest of the package is read as it is installed."""

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
        "def nms(boxes):\n    _assert_has_ops()\n"
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
try:
    ops.nms(None)
except RuntimeError as error:
    print(error)
"""


def test_torchvision_as_it_is_installed(tmp_path):
    for name, content in FILES.items():
        file = tmp_path / "torchvision" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "[6] False" and "nms" in second and "gl.library.custom_op" in second
