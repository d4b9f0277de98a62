// Writes the synthetic images that `yoke train --data.name synthetic` reads, for losses.py:
// yoke_write_images CLASSES SIDE SAMPLES SEED FILE
//
// The file holds the pixels as float32 [SAMPLES, 3, SIDE, SIDE], then the labels as int64.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <vector>

#include "yoke/data/dataset.h"

namespace {

void write(std::ofstream& file, const torch::Tensor& tensor) {
  file.write(static_cast<const char*>(tensor.const_data_ptr()),
             static_cast<std::streamsize>(tensor.nbytes()));
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) {
    std::fprintf(stderr, "usage: %s CLASSES SIDE SAMPLES SEED FILE\n", words[0]);
    return 2;
  }
  const int64_t classes = std::atoll(words[1]), side = std::atoll(words[2]), samples = std::atoll(words[3]);
  yoke::data::DataOptions options;
  options.samples = samples;
  auto images = yoke::data::open(options, yoke::data::Split::kTrain,
                                 {yoke::SampleKind::kImage, {3, side, side}, classes},
                                 static_cast<uint64_t>(std::atoll(words[4])));
  std::ofstream file(words[5], std::ios::binary);
  std::vector<torch::Tensor> labels;
  for (int64_t i = 0; i < samples; ++i) {
    const yoke::data::Batch one = images->gather(std::span<const int64_t>(&i, 1));
    write(file, one.inputs[0]);
    labels.push_back(one.target);
  }
  write(file, torch::cat(labels));
  return file.good() ? 0 : 1;
}
