import pytest

from otel_bridge.mapping.operators import innermost_module, source_line

TORCH = (
    '  File "/usr/lib/python3/dist-packages/torch/nn/modules/conv.py", line 565, in forward\n    return self._conv_forward(x)\n'
)
OWN = '  File "/builds/app/model.py", line 12, in forward\n    x = self.conv(x)\n'
DEEPER = '  File "C:\\app\\layers.py", line 7, in <lambda>\n    f = lambda t: File "x.py", line 1, in g\n            ^^^^\n'


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        ("", ("", 0)),
        ("no frames", ("", 0)),
        (OWN, ("/builds/app/model.py", 12)),
        (OWN + TORCH, ("/builds/app/model.py", 12)),
        (TORCH + OWN + DEEPER, ("C:\\app\\layers.py", 7)),
        (TORCH, ("/usr/lib/python3/dist-packages/torch/nn/modules/conv.py", 565)),
        ('File "/src/pytorch/torch/nn/functional.py", line 3, in relu\n' + TORCH, (TORCH.split('"')[1], 565)),
        (OWN + '  File "<eval_with_key>.1", line 4, in forward\n', ("/builds/app/model.py", 12)),
        (OWN.lstrip() + "\n" + DEEPER, ("C:\\app\\layers.py", 7)),
        ('  File "mytorch/site.py", line 9, in f\n' + TORCH, ("mytorch/site.py", 9)),
        ('  File "x.py", line 99999999999, in f\n', ("", 0)),
    ],
)
def test_source_line(trace: str, line: tuple[str, int]) -> None:
    """The line is that of the innermost frame outside torch and installed packages, else of the innermost."""
    assert source_line(trace) == line


@pytest.mark.parametrize(
    ("stack", "module"),
    [
        ("", ("", "")),
        ("nonsense", ("", "")),
        ("L__self__,,__main__.M", ("", "__main__.M")),
        ("L__self__,,__main__.M;L__self___l,layer1.0.conv,torch.nn.Conv2d", ("layer1.0.conv", "torch.nn.Conv2d")),
        ("k,blocks['a,b'].lin,torch.nn.Linear", ("blocks['a,b'].lin", "torch.nn.Linear")),
    ],
)
def test_innermost_module(stack: str, module: tuple[str, str]) -> None:
    """Path and type are those of the last entry; the root module has no path."""
    assert innermost_module(stack) == module
