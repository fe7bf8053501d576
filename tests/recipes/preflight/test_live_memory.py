from keras_vit.recipes.preflight.live_memory import fullest_moment, layer_of

# Two layers' tensors live at once at the sum; b's is filled up to tiles of (8, 128), c's lies in the small fast memory,
# the donated result is no temporary.
SCHEDULE = """HloModule step, is_scheduled=true

ENTRY %main (p: f32[8,128]) -> (f32[8,128]) {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  %a = bf16[16,128]{1,0:T(8,128)(2,1)} fusion(%p), kind=kLoop, metadata={op_name="vit_1/encoder_1/block_0_1/mlp_1/Mul"}
  %b = f32[3,100]{1,0:T(8,128)} fusion(%p), kind=kLoop, metadata={op_name="vit_1/encoder_1/block_1_1/attention_1/Add"}
  %view = f32[300]{0:T(256)} bitcast(%b)
  %c = f32[8,128]{1,0:T(8,128)S(1)} fusion(%a, %view), kind=kLoop
  %later = f32[8,128]{1,0:T(8,128)} fusion(%c), kind=kLoop, metadata={op_name="vit_1/head_1/Add"}
  %result = f32[8,128]{1,0:T(8,128)} fusion(%later), kind=kLoop
  ROOT %tuple = (f32[8,128]{1,0:T(8,128)}) tuple(%result)
}
"""


def test_the_fullest_moment_is_counted_with_padding():
    most, layers = fullest_moment(SCHEDULE)
    assert most == 16 * 128 * 2 + 8 * 128 * 4
    assert layers == [("vit/encoder/block_0/mlp", 4096.0), ("vit/encoder/block_1/attention", 4096.0)]
    assert len(fullest_moment(SCHEDULE, count=1)[1]) == 1


def test_names_of_layers_are_those_of_keras():
    assert layer_of("gradient_tape/vit_1/encoder_1/block_11_1/mlp_1/dense_1/MatMul") == "vit/encoder/block_11/mlp"
    assert layer_of("compile_loss/softmax/Sum") == "compile_loss/softmax"
    assert layer_of("Cast") == "Cast"
