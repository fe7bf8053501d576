// Prints the likeliest class of an image, see tflite.md: ./classify FILE SIZE NUM_CLASSES < pixels
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "litert/c/litert_common.h"
#include "litert/c/litert_compiled_model.h"
#include "litert/c/litert_environment.h"
#include "litert/c/litert_model.h"
#include "litert/c/litert_options.h"
#include "litert/c/litert_tensor_buffer.h"

void Check(LiteRtStatus status) {
  if (status != kLiteRtStatusOk) std::exit(std::fprintf(stderr, "LiteRT: error %d\n", status));
}

LiteRtTensorBuffer Buffer(LiteRtEnvironment environment, std::vector<int> shape) {
  LiteRtRankedTensorType type = {kLiteRtElementTypeFloat32, {static_cast<unsigned>(shape.size()), false}};
  size_t bytes = sizeof(float);
  for (size_t i = 0; i < shape.size(); ++i) bytes *= type.layout.dimensions[i] = shape[i];
  LiteRtTensorBuffer buffer;
  Check(LiteRtCreateManagedTensorBuffer(environment, kLiteRtTensorBufferTypeHostMemory, &type, bytes, &buffer));
  return buffer;
}

float* Lock(LiteRtTensorBuffer buffer, LiteRtTensorBufferLockMode mode) {
  void* values;
  Check(LiteRtLockTensorBuffer(buffer, &values, mode));
  return static_cast<float*>(values);
}

int main(int argc, char** argv) {
  LiteRtEnvironment environment;
  LiteRtModel model;
  LiteRtOptions options;
  LiteRtCompiledModel compiled;
  Check(LiteRtCreateEnvironment(0, nullptr, &environment));
  Check(LiteRtCreateModelFromFile(environment, argv[1], &model));
  Check(LiteRtCreateOptions(&options));
  Check(LiteRtSetOptionsHardwareAccelerators(options, kLiteRtHwAcceleratorCpu));
  Check(LiteRtCreateCompiledModel(environment, model, options, &compiled));

  const int size = std::atoi(argv[2]), classes = std::atoi(argv[3]);
  LiteRtTensorBuffer input = Buffer(environment, {1, size, size, 3}), output = Buffer(environment, {1, classes});
  float* pixels = Lock(input, kLiteRtTensorBufferLockModeWrite);
  for (int i = 0; i < size * size * 3; ++i) pixels[i] = std::getchar();  // red, green, blue of each pixel, 0 to 255
  Check(LiteRtUnlockTensorBuffer(input));
  Check(LiteRtRunCompiledModel(compiled, 0, 1, &input, 1, &output));  // of the first signature
  float* probabilities = Lock(output, kLiteRtTensorBufferLockModeRead);
  int best = std::max_element(probabilities, probabilities + classes) - probabilities;
  std::printf("class %d: %.3f\n", best, probabilities[best]);
}
