from keras_vit.recipes.preflight.live_tensors import peak_live_tensors

# At `c` the tensors of two layers are live. `b` is padded to tiles of (8, 128), `c` is in the small fast memory, and
# the donated result is not a temporary.
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


def test_peak_includes_padding():
    peak, layers = peak_live_tensors(SCHEDULE)
    assert peak == 16 * 128 * 2 + 8 * 128 * 4
    assert layers == [("vit/encoder/block_0/mlp", 4096.0), ("vit/encoder/block_1/attention", 4096.0)]


# The second result of `a` is live until the end, the first until `b`. A tensor inside the loop is as large as both. The
# result `x` of the loop has the memory of `b`.
LOOP = """HloModule step, is_scheduled=true

%body (state: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %state = (s32[], f32[8,128]{1,0:T(8,128)}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x.0 = f32[8,128]{1,0:T(8,128)} get-tuple-element(%state), index=1
  %inside = f32[16,128]{1,0:T(8,128)} fusion(%x.0), kind=kLoop, metadata={op_name="vit_1/encoder_1/b_1/while/mlp_1/M"}
  %x.1 = f32[8,128]{1,0:T(8,128)} fusion(%inside), kind=kLoop
  ROOT %next = (s32[], f32[8,128]{1,0:T(8,128)}) tuple(%i, %x.1)
}

ENTRY %main (p: f32[8,128]) -> (f32[8,128]) {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  %zero = s32[] constant(0)
  %a = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}) fusion(%p), kind=kLoop, metadata={op_name="vit_1/a_1/Add"}
  %first = f32[8,128]{1,0:T(8,128)} get-tuple-element(%a), index=0
  %second = f32[8,128]{1,0:T(8,128)} get-tuple-element(%a), index=1
  %b = f32[8,128]{1,0:T(8,128)} fusion(%first), kind=kLoop, metadata={op_name="vit_1/b_1/Add"}
  %start = (s32[], f32[8,128]{1,0:T(8,128)}) tuple(%zero, %b)
  %loop = (s32[], f32[8,128]{1,0:T(8,128)}) while(%start), condition=%less, body=%body
  %x = f32[8,128]{1,0:T(8,128)} get-tuple-element(%loop), index=1
  %result = f32[8,128]{1,0:T(8,128)} fusion(%x, %second), kind=kLoop
  ROOT %tuple = (f32[8,128]{1,0:T(8,128)}) tuple(%result)
}
"""


def test_peak_of_loops_and_instructions_with_several_results():
    peak, layers = peak_live_tensors(LOOP)
    assert layers == [("vit/encoder/b/mlp", 8192.0), ("vit/a", 4096.0), ("vit/b", 4096.0)]
    assert peak == 16384
