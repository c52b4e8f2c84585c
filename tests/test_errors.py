"""Errors that teach: each says what happened, where, and what to do. The words asserted here are the useful ones."""

import numpy as np
import pytest

import gradlab as gl
from gradlab import autograd
from gradlab.autograd import errors


def leaf(values):
    return gl.tensor(values, dtype=gl.float64, requires_grad=True)


def says(error, *words):
    text = str(error.value)
    assert all(word in text for word in words), text


def test_a_second_backward():
    x = leaf([1.0, 2.0])
    loss = (x * x).sum()  # the forward line
    loss.backward()
    with pytest.raises(RuntimeError) as error:
        loss.backward()
    says(error, "MulBackward0", "already run", "retain_graph=True", "loss = (x * x).sum()  # the forward line", __file__)


def test_a_second_backward_through_a_shared_part():
    x = leaf([1.0, 2.0])
    shared = x.exp()
    shared.sum().backward()
    with pytest.raises(RuntimeError) as error:
        (shared * 2).sum().backward()
    says(error, "ExpBackward0", "shared = x.exp()")


def test_a_freed_node_called_by_hand():
    x = leaf([1.0])
    y = x * x
    y.sum().backward()
    with pytest.raises(RuntimeError, match="freed"):
        y.grad_fn(gl.ones(1, dtype=gl.float64))


def test_a_loss_that_is_no_number():
    with pytest.raises(RuntimeError) as error:
        (leaf([1.0, 2.0]) * 2).backward()
    says(error, "scalar", "(2,)", ".sum()", "gradient=")


def test_a_loss_without_a_graph():
    with pytest.raises(RuntimeError) as error:
        gl.ones(2).sum().backward()
    says(error, "does not require grad", "requires_grad=True", "no_grad()", "detach()")
    x = leaf([1.0])
    with gl.no_grad():
        loss = (x * 2).sum()
    with pytest.raises(RuntimeError, match="no_grad"):
        loss.backward()


def test_integers_take_no_gradient():
    with pytest.raises(RuntimeError, match="floating point"):
        gl.tensor([1, 2], requires_grad=True)
    for values in ([1, 2], [True]):
        with pytest.raises(RuntimeError, match="floating point"):
            gl.tensor(values).requires_grad_()


def test_computed_tensors_keep_requiring_grad():
    with pytest.raises(RuntimeError, match=r"only leaves.*detach\(\)"):
        (leaf([1.0]) * 2).requires_grad_(False)


def test_gradients_of_the_wrong_shape():
    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError) as error:
        (x * 2).backward(gl.ones(3))
    says(error, "(3,)", "(2,)", "gradient")
    with pytest.raises(RuntimeError) as error:
        autograd.grad(x * 2, x, grad_outputs=gl.ones(1, 2))
    says(error, "(1, 2)", "(2,)")
    with pytest.raises(RuntimeError, match="1 gradients for 2 outputs"):
        autograd.backward([x * 2, x * 3], [gl.ones(2)])


def test_gradients_of_the_wrong_kind():
    x = leaf(1.0)
    for wrong in (1.0, np.ones(()), [1.0]):
        with pytest.raises(TypeError, match="gradient is a tensor"):
            (x * 2).backward(wrong)
    for wrong in (1.0, np.ones(())):
        with pytest.raises(TypeError, match="tensor or None"):
            x.grad = wrong
    with pytest.raises(RuntimeError, match="shape and dtype"):
        x.grad = gl.ones(2, dtype=gl.float64)
    with pytest.raises(RuntimeError, match="float64"):
        x.grad = gl.ones((), dtype=gl.float32)


def test_inputs_and_outputs_exchanged():
    x = leaf([1.0, 2.0])
    loss = (x * x).sum()
    with pytest.raises(RuntimeError, match=r"grad\(outputs, inputs\)"):
        autograd.grad(x, loss)
    w = leaf(1.0)
    with pytest.raises(RuntimeError, match=r"grad\(outputs, inputs\)"):
        autograd.grad(w, (w * 2).sum())


def test_inputs_that_take_no_gradient():
    x = leaf([1.0])
    with pytest.raises(RuntimeError, match=r"input 1 \(shape \(2,\)\) does not require grad"):
        autograd.grad((x * 2).sum(), (x, gl.ones(2)))
    with pytest.raises(RuntimeError, match="does not require grad"):
        (x * 2).sum().backward(inputs=[gl.ones(2)])
    with pytest.raises(RuntimeError, match="inputs is empty"):
        (x * 2).sum().backward(inputs=[])
    for call in (lambda: autograd.grad((x * 2).sum(), [3.0]), lambda: autograd.grad([3.0], x), lambda: autograd.backward([None])):
        with pytest.raises(TypeError, match="not a tensor"):
            call()


def test_an_unused_input():
    x, y = leaf([1.0]), leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match=r"input 1 \(shape \(2,\)\) was not used.*allow_unused=True.*materialize_grads=True"):
        autograd.grad((x * 2).sum(), (x, y))


@pytest.mark.parametrize(
    "call, kind, words",
    [
        (lambda: gl.ones(2, 3) + gl.ones(2, 4), RuntimeError, ("add", "(2, 3)", "(2, 4)")),
        (lambda: gl.ones(2, 3) @ gl.ones(2, 3), RuntimeError, ("matmul", "(2, 3)")),
        (lambda: gl.ones(2).view(3), RuntimeError, ("view", "3", "(2,)")),
        (lambda: gl.ones(2) + "a", TypeError, ("add", "str")),
        (lambda: gl.ones(2) + {}, TypeError, ("add", "dict", "gradlab.tensor")),
        (lambda: gl.ones(2).sum(dim=3), IndexError, ("dim", "3")),
    ],
)
def test_operations_name_themselves_and_the_shapes(call, kind, words):
    with pytest.raises(kind) as error:
        call()
    says(error, *words)


# ---------------------------------------------------------------- the forward line, also where a library function made the node


def in_the_library(source):
    """Functions as the recorder sees those of the library: their file lies in gradlab's own folder."""
    functions = {}
    exec(compile(source, errors.__file__.replace("errors", "imaginary"), "exec"), functions)
    return functions


steps = in_the_library("def steps(x):\n    y = x * x\n    z = y * x\n    return z + x\n")["steps"]


def test_a_node_of_a_library_function_is_placed_between_the_users_lines():
    x = leaf([1.0, 2.0])
    before = x * 3.0  # before
    inner = steps(before)  # the call
    after = inner.sum()  # after
    after.backward()
    again = inner.sum()
    with pytest.raises(RuntimeError) as error:
        again.backward()
    text = str(error.value)
    assert "MulBackward0" in text
    exact = "inner = steps(before)  # the call" in text
    around = "steps()" in text and "before = x * 3.0  # before" in text and "again = inner.sum()" in text
    assert exact or around, text


def test_operations_of_a_module_of_the_users_have_their_own_line():
    class Square(gl.nn.Module):
        def forward(self, x):
            y = x * x  # inside forward
            return y + 1

    x = leaf([1.0])
    out = Square()(x)
    assert out.grad_fn.next_functions[0].node.forward_position.text == "y = x * x  # inside forward"


def test_operations_of_a_library_module_have_the_line_of_its_call():
    layer = gl.nn.Linear(2, 1)
    x = gl.ones(3, 2)
    out = layer(x)  # the call
    assert out.grad_fn.forward_position.text == "out = layer(x)  # the call"
    loss = out.sum()
    loss.backward()
    with pytest.raises(RuntimeError) as error:
        (out * 2).sum().backward()
    says(error, "out = layer(x)  # the call")


def test_an_error_of_the_walk_names_the_operation():
    class Broken(RuntimeError):
        pass

    x = leaf([1.0])
    y = x.exp()  # the line

    def hook(gradients):
        raise Broken("inside")

    y.grad_fn.register_prehook(hook)
    with pytest.raises(Broken) as error:
        y.sum().backward()
    assert "ExpBackward0" in error.value.__notes__[0] and "y = x.exp()  # the line" in error.value.__notes__[0]
