// Prints the likeliest class of an image, see tflite.md: ./classify FILE < pixels
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "litert/c/litert_common.h"
#include "litert/c/litert_compiled_model.h"
#include "litert/c/litert_environment.h"
#include "litert/c/litert_model.h"
#include "litert/c/litert_options.h"
#include "litert/c/litert_tensor_buffer.h"

void Check(LiteRtStatus status) {
  if (status != kLiteRtStatusOk) std::exit((std::fprintf(stderr, "LiteRT: error %d\n", status), 1));
}

// An input or output of the shape and type that the file states: float32, or uint8 in an int8 file.
struct Tensor {
  Tensor(LiteRtEnvironment environment, LiteRtTensor tensor) {
    LiteRtRankedTensorType type;
    Check(LiteRtGetRankedTensorType(tensor, &type));
    is_float = type.element_type == kLiteRtElementTypeFloat32;
    for (unsigned i = 0; i < type.layout.rank; ++i) count *= type.layout.dimensions[i];
    size_t bytes = count * (is_float ? sizeof(float) : 1);
    Check(LiteRtCreateManagedTensorBuffer(environment, kLiteRtTensorBufferTypeHostMemory, &type, bytes, &buffer));
  }

  void Write(const std::vector<unsigned char>& values) {
    void* data;
    Check(LiteRtLockTensorBuffer(buffer, &data, kLiteRtTensorBufferLockModeWrite));
    if (is_float) std::copy(values.begin(), values.end(), static_cast<float*>(data));
    else std::copy(values.begin(), values.end(), static_cast<unsigned char*>(data));
    Check(LiteRtUnlockTensorBuffer(buffer));
  }

  std::vector<float> Read() {
    void* data;
    Check(LiteRtLockTensorBuffer(buffer, &data, kLiteRtTensorBufferLockModeRead));
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = is_float ? static_cast<float*>(data)[i] : static_cast<unsigned char*>(data)[i] / 256.0f;
    }
    Check(LiteRtUnlockTensorBuffer(buffer));
    return values;
  }

  bool is_float;
  size_t count = 1;
  LiteRtTensorBuffer buffer;
};

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "Expected ./classify FILE < pixels\n"), 2;
  LiteRtEnvironment environment;
  LiteRtModel model;
  LiteRtOptions options;
  LiteRtCompiledModel compiled;
  LiteRtSignature signature;
  LiteRtTensor images, probabilities;
  Check(LiteRtCreateEnvironment(0, nullptr, &environment));
  Check(LiteRtCreateModelFromFile(environment, argv[1], &model));
  Check(LiteRtCreateOptions(&options));
  Check(LiteRtSetOptionsHardwareAccelerators(options, kLiteRtHwAcceleratorCpu));
  Check(LiteRtCreateCompiledModel(environment, model, options, &compiled));
  Check(LiteRtGetModelSignature(model, 0, &signature));
  Check(LiteRtGetSignatureInputTensorByIndex(signature, 0, &images));
  Check(LiteRtGetSignatureOutputTensorByIndex(signature, 0, &probabilities));

  Tensor input(environment, images), output(environment, probabilities);
  std::vector<unsigned char> pixels(input.count);  // red, green, blue of each pixel, 0 to 255
  size_t received = std::fread(pixels.data(), 1, pixels.size(), stdin);
  if (received != pixels.size() || std::getchar() != EOF) {
    return std::fprintf(stderr, "Expected %zu bytes of pixels. Received: %s\n", pixels.size(),
                        received == pixels.size() ? "more" : std::to_string(received).c_str()), 2;
  }
  input.Write(pixels);
  Check(LiteRtRunCompiledModel(compiled, 0, 1, &input.buffer, 1, &output.buffer));  // of the first signature
  std::vector<float> values = output.Read();
  size_t best = std::max_element(values.begin(), values.end()) - values.begin();
  std::printf("class %zu: %.3f\n", best, values[best]);
}
