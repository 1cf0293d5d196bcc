"""`plait fmt`: what it owns and what it keeps."""
import pytest

from plait.dsl.errors import PlaitError
from plait.dsl.printer import format

MESSY = """

# first
plait   1
## Sizes.


dims{ # all of them
      V=256;n   =  64Ki   # 65,536

  d=-2^ 3*( h+1 )


  # last

}
model m
{
input x :tokens [ n ]of V   padded
   y= x{gelu;linear( d )   ;  repeat(2*L)as i shared{a}}
   z = x { parallel(merge=add){ a:{gelu} b : { } } ; gelu
  # inside
  attention( heads=h ,
      # why
        causal=true,
  ) }   # behind
  output y:[ n,V ] }
train m{ lr=1e-3;every 500   steps{evaluate( loss )} }
"""

NEAT = """\
# first
plait 1
## Sizes.

dims {  # all of them
  V = 256; n = 64Ki  # 65,536

  d = -2^3 * (h + 1)

  # last
}
model m {
  input x: tokens[n] of V padded
  y = x { gelu; linear(d); repeat (2 * L) as i shared { a } }
  z = x {
    parallel(merge = add) { a: { gelu } b: {} }; gelu
    # inside
    attention(heads = h,
      # why
      causal = true,
    )
  }  # behind
  output y: [n, V]
}
train m { lr = 1e-3; every 500 steps { evaluate(loss) } }
"""


def test_a_messy_file_becomes_neat():
    assert format(MESSY) == NEAT


def test_a_neat_file_stays():
    assert format(NEAT) == NEAT


@pytest.mark.parametrize("text, neat", [
    ("plait 1", "plait 1\n"),
    ("plait 1\n\n\n\nuse \"a\"\n\n\n", "plait 1\n\nuse \"a\"\n"),
    ("plait 1\nblock b {\n\n\n}\n", "plait 1\nblock b {\n}\n"),
    ("plait 1\nblock b { }\n", "plait 1\nblock b {}\n"),
    ("plait 1\r\ndims {\r\n\td = 3 # x\r\n}\r\n", "plait 1\ndims {\n  d = 3  # x\n}\n"),
    ("plait 1\nblock b # what\n{ gelu }\n", "plait 1\nblock b  # what\n{ gelu }\n"),
    ("plait 1\nlet a = 1 - -2\n", "plait 1\nlet a = 1 - -2\n"),
    ("plait 1\nlet a = f(-1, [-2], x = - 3)\n", "plait 1\nlet a = f(-1, [-2], x = -3)\n"),
    ("plait 1; let a = 1\n", "plait 1; let a = 1\n"),
    ("plait 1\nblock b { a;;\n; c }\n", "plait 1\nblock b {\n  a\n  c\n}\n"),
])
def test_small_files(text, neat):
    assert format(text) == neat
    assert format(neat) == neat


def test_a_wrong_file_is_not_laid_out():
    with pytest.raises(PlaitError):
        format("plait 1\ndims {\n")
