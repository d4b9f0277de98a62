// [model]: which model, and its sizes. Keys that a model does not use must keep their defaults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/config/fields.h"

namespace yoke::models {

struct ModelOptions {
  std::string name = "lenet";
  // 0 or empty: the model's own default.
  int64_t classes = 0;
  int64_t image_size = 0;
  std::vector<int64_t> sizes = {};  // mlp
  std::string size = {};            // gpt2: "124m" "355m" "774m" "1558m"
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;
  int64_t positions = 0;
  double dropout = -1;   // -1: the model's own
  int64_t frames = 0;    // s2vt
  int64_t features = 0;  // s2vt, sparse_lr
  int64_t words = 0;     // s2vt
};

inline void describe(config::Fields& f, ModelOptions& o) {
  f.choice("name", o.name,
           {"lenet", "mlp", "vgg_small", "alexnet", "vgg16", "resnet50", "inception_v3", "gpt2", "s2vt",
            "sparse_lr"},
           "which model");
  f.integer("classes", o.classes, "image models: number of classes; 0 is the model's own (10 or 1000)");
  f.integer("image_size", o.image_size, "image models: height and width of the input; 0 is the model's own");
  f.integers("sizes", o.sizes, "mlp: widths of its layers, input first; empty is [784, 256, 10]");
  f.choice("size", o.size, {"", "124m", "355m", "774m", "1558m"},
           "gpt2: a published size; replaces layers, heads and width");
  f.integer("layers", o.layers, "gpt2: number of blocks");
  f.integer("heads", o.heads, "gpt2: attention heads");
  f.integer("width", o.width, "gpt2, s2vt: width of the hidden state");
  f.integer("vocabulary", o.vocabulary, "gpt2, s2vt: number of different tokens");
  f.integer("positions", o.positions, "gpt2: longest sequence");
  f.number("dropout", o.dropout, "share of activations dropped in training; -1 is the model's own", -1,
           0.999);
  f.integer("frames", o.frames, "s2vt: frames of a video");
  f.integer("features", o.features, "s2vt: features of a frame; sparse_lr: number of features");
  f.integer("words", o.words, "s2vt: words of a description");
}

}  // namespace yoke::models
