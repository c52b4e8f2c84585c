"""GraphModule: a module whose `forward` is the code of a graph."""

from __future__ import annotations

import copy
import importlib
import itertools
from typing import Any

from gradlab.fx.code import PythonCode, compiled
from gradlab.fx.graph import Graph
from gradlab.nn import Module, Parameter
from gradlab.tensor import Tensor


def _fetched(root: Any, path: str) -> Any:
    for part in path.split("."):
        if not hasattr(root, part):
            raise RuntimeError(f"GraphModule: a node of the graph refers to {path!r}, and the root has no {part!r} there")
        root = getattr(root, part)
    return root


def _placed(owner: Module, path: str, value: Any) -> None:
    """Put a value at a dotted name, with modules made on the way where there are none."""
    *ahead, last = path.split(".")
    for part in ahead:
        if part not in owner._modules:
            owner.add_module(part, Module())
        owner = owner._modules[part]  # type: ignore[assignment]
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        if last not in owner._buffers:
            owner.register_buffer(last, value)
    else:
        setattr(owner, last, value)


class GraphModule(Module):
    """A module that runs a graph.

    root: the module, or a dict by dotted name, that has what the graph refers to; this is shared, not copied. After a change of the graph
    `recompile()` makes the code anew; assigning `graph` does, too.
    """

    _graph: Graph
    _code: str

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        """Each has a class of its own, for a `forward` of its own."""
        base = next(c for c in cls.__mro__ if "forward" not in vars(c) or not issubclass(c, GraphModule))
        return super().__new__(type(base.__name__, (base,), {"__module__": base.__module__}))

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        paths = dict.fromkeys(str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module"))
        if isinstance(root, Module):
            self.training = root.training
            for path in sorted(paths, key=lambda path: path.count(".")):
                _placed(self, path, _fetched(root, path))
            self._keep_buffers_persistence(root)
        elif isinstance(root, dict):
            for path in sorted(paths, key=lambda path: path.count(".")):
                if path not in root:
                    raise RuntimeError(f"GraphModule: a node of the graph refers to {path!r}, which is not in the dict")
                _placed(self, path, root[path])
        else:
            raise RuntimeError(f"GraphModule: root is a module or a dict, not {type(root).__name__}")
        self.__dict__["meta"] = dict(getattr(root, "meta", {})) if isinstance(root, GraphModule) else {}
        self.graph = graph

    def _keep_buffers_persistence(self, root: Module) -> None:
        for path, module in root.named_modules():
            try:
                twin = self.get_submodule(path)
            except AttributeError:
                continue
            twin._non_persistent_buffers_set.update(name for name in module._non_persistent_buffers_set if name in twin._buffers)

    # ------------------------------------------------------------ the graph

    @property
    def graph(self) -> Graph:
        """The graph. Assigning another one compiles it."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"GraphModule.graph: a Graph, not {type(g).__name__}")
        self.__dict__["_graph"] = g
        g.owning_module = self
        self.recompile()

    def recompile(self) -> PythonCode:
        """Make the code of the graph as it is now. Returns the text, and what its names mean."""
        code = self._graph.python_code("self")
        self.__dict__["_code"] = code.src
        type(self).forward = compiled(code)  # type: ignore[method-assign]
        return code

    @property
    def code(self) -> str:
        """The text of `forward`."""
        return self._code

    def print_readable(self, print_output: bool = True, include_stride: bool = False, include_device: bool = False, **_: Any) -> str:
        """The code as a class's; also printed, unless print_output is False. The other arguments are taken."""
        lines = "".join(f"    {line}\n" if line else "\n" for line in self._code.rstrip("\n").split("\n"))
        text = f"class {type(self).__name__}(gradlab.nn.Module):\n{lines}"
        for name, child in self.named_children():
            if isinstance(child, GraphModule):
                text += f"\n    # {name}\n" + "".join(f"    {line}\n" for line in child.print_readable(False).rstrip("\n").split("\n"))
        if print_output:
            print(text)
        return text

    # ------------------------------------------------------------ submodules

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module at a dotted name, where nothing else is on the way; whether that could be done."""
        owner: Module = self
        *ahead, last = target.split(".")
        for part in ahead:
            found = getattr(owner, part, None)
            if found is None:
                owner.add_module(part, found := Module())
            elif not isinstance(found, Module):
                return False
            owner = found
        owner.__dict__.get("_modules", {}).pop(last, None)
        owner.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module of a dotted name; whether there was one."""
        path, _, last = target.rpartition(".")
        try:
            owner = self.get_submodule(path)
        except AttributeError:
            return False
        if not isinstance(owner._modules.get(last), Module):
            return False
        del owner._modules[last]
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the modules that the graph does not refer to."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = str(node.target).split(".")
                used.update(itertools.accumulate(parts, "{}.{}".format))
                if node.op == "call_module":
                    used.update(f"{node.target}.{name}" for name, _ in self.get_submodule(str(node.target)).named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # ------------------------------------------------------------ copies

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        twin = Module()
        memo[id(self)] = twin
        own = {name: value for name, value in self.__dict__.items() if name not in ("_graph", "_code")}
        twin.__dict__.update(copy.deepcopy(own, memo))
        made = GraphModule(twin, copy.deepcopy(self._graph), type(self).__name__)
        return self._like(made, twin)

    def __copy__(self) -> GraphModule:
        return self._like(GraphModule(self, copy.deepcopy(self._graph), type(self).__name__), self)

    def _like(self, made: GraphModule, twin: Module) -> GraphModule:
        """With what the graph does not refer to: other submodules and attributes, and hooks."""
        for name, value in twin.__dict__.items():
            if name not in ("_graph", "_code"):
                made.__dict__[name] = dict(value) if isinstance(value, dict) else value
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_graph", "_code")}
        code = self._graph.python_code("self")
        names = {name: value for name, value in code.globals.items() if name != "gradlab"}
        return rebuilt, (state, code.src, names, type(self).__name__)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()


class _Kept(Module):
    """A module with a graph module's attributes and code, on its way back from a pickle."""


def rebuilt(state: dict[str, Any], source: str, names: dict[str, Any], class_name: str) -> GraphModule:
    """The GraphModule of a pickle: its code is traced again, with every submodule kept whole."""
    from_code = importlib.import_module("gradlab.fx._symbolic_trace")
    kept = _Kept()
    kept.__dict__.update(state)
    code = PythonCode(source, {**names, "gradlab": importlib.import_module("gradlab")})
    kind: Any = type("_Kept", (_Kept,), {"forward": compiled(code)})
    kept.__class__ = kind

    class Whole(from_code.Tracer):  # type: ignore[name-defined, misc]
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    tracer = Whole(autowrap_functions=tuple(value for value in names.values() if callable(value) and not isinstance(value, type)))
    made = GraphModule(kept, tracer.trace(kept), class_name)
    return made._like(made, kept)
