// Sequential networks: convolutions, then linear layers, one block each.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/models/common/layers.h"
#include "yoke/models/common/task.h"
#include "yoke/models/model.h"

namespace yoke::models {

struct Pool {
  int64_t kernel = 0;  // 0: no pooling
  int64_t stride = 0;
};

struct DenseOptions {
  double dropout = 0;  // on its input
  bool relu = true;
  int64_t average_to = 0;  // average the feature map to this height and width first; 0: no
};

// Adds layers to a model from input to output, tracking sizes and multiply-adds.
class Stack {
 public:
  // `model` must outlive the stack.
  Stack(Model& model, const ImageTask& input);
  Stack(Model& model, int64_t features);  // a vector

  // Convolution, ReLU and max pooling, registered under the dotted path, which is also the block's name.
  void conv(const std::string& path, int64_t out, const ConvOptions& options, Pool pool = {});
  // The same with batch normalisation between convolution and ReLU, registered under `norm_path`.
  void conv_norm(const std::string& path, const std::string& norm_path, int64_t out,
                 const ConvOptions& options, Pool pool = {});
  // Linear layer on the flattened input, with ReLU by default.
  void dense(const std::string& path, int64_t out, const DenseOptions& options = {});

  int64_t multiply_adds() const { return multiply_adds_; }

 private:
  void count(const Conv2d& layer, int64_t out, Pool pool);

  Model& model_;
  int64_t channels_;
  int64_t side_;
  int64_t multiply_adds_ = 0;
};

}  // namespace yoke::models
