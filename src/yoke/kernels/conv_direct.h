// Direct convolution of planes (NCHW) at stride 1, for layers with few channels, where the setup of the
// general paths costs more than the arithmetic. Vectorised along rows of pixels.
//
// All functions process one image whose planes were copied into padded rows, so that reading past the end is
// safe (pad_planes).
#pragma once

#include <cstdint>
#include <vector>

namespace yoke::kernels {

struct PlaneShape {
  int64_t channels = 0, height = 0, width = 0;  // of the input
  int64_t outputs = 0;                          // output channels
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t padding_height = 0, padding_width = 0;

  int64_t out_height() const { return height + 2 * padding_height - kernel_height + 1; }
  int64_t out_width() const { return width + 2 * padding_width - kernel_width + 1; }
  int64_t weights() const { return outputs * channels * kernel_height * kernel_width; }
  // Rows of a padded plane, floats per row, floats of a padded image.
  int64_t rows() const { return height + 2 * padding_height; }
  int64_t pitch() const;
  int64_t padded_size() const;
  // The convolution that turns the gradient of the output into the gradient of the input.
  PlaneShape transposed() const;
};

// Copies the image's planes with zero padding.
void pad_planes(const float* image, float* padded, const PlaneShape& shape);

// y [outputs, out_height, out_width] = weight [outputs, channels, kh, kw] * padded, plus bias (nullptr:
// none).
void convolve_planes(const float* padded, const float* weight, const float* bias, float* y,
                     const PlaneShape& shape);

// The weight of shape.transposed(): channels swapped, taps reversed.
void transpose_weight(const float* weight, float* transposed, const PlaneShape& shape);

// Accumulates the weight gradient over images: construct, add images, then add_to().
class WeightGradient {
 public:
  explicit WeightGradient(const PlaneShape& shape);
  // grad_y [outputs, out_height, out_width]; requires height of the kernel >= 1.
  void add(const float* padded, const float* grad_y);
  // Adds the accumulated gradient to grad_weight [outputs, channels, kh, kw].
  void add_to(float* grad_weight) const;

 private:
  PlaneShape shape_;
  PlaneShape rows_;  // grad_y's planes, padded to whole vectors
  std::vector<float> grad_y_;
  std::vector<float> sums_;  // one vector per weight
};

namespace reference {
void convolve(const float* image, const float* weight, const float* bias, float* y, const PlaneShape& shape);
void weight_gradient(const float* image, const float* grad_y, double* grad_weight, const PlaneShape& shape);
}  // namespace reference

}  // namespace yoke::kernels
