// Which part of a picture a sample shows, and how it is changed.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/base/random.h"
#include "yoke/data/formats/images/picture.h"

namespace yoke::data {

struct View {
  Region region;                 // resampled to the model's size
  bool flip = false;             // left and right exchanged
  int shift_x = 0, shift_y = 0;  // then moved right and down by so many pixels, with black behind
  float brightness = 1;          // factors, in this order
  float contrast = 1;            // around the mean grey
  float saturation = 1;          // around each pixel's grey
  bool operator==(const View&) const = default;
};

struct Augmentation {
  std::string kind = "none";  // none, imagenet, cifar
  double jitter = 0;          // largest change of brightness, contrast and saturation
};

// imagenet: a region of 8 % to 100 % of the area with sides 3:4 to 4:3 (Szegedy et al. 2014, as torchvision's
// RandomResizedCrop), flipped half of the time. cifar: the centre, flipped half of the time and moved by up
// to an eighth (4 of 32 pixels). none: test_view().
View training_view(const Augmentation& augmentation, Size size, int side, Random& random);
// The centre square; with imagenet 7/8 of it, which equals resizing to 256 and cutting out 224.
View test_view(const Augmentation& augmentation, Size size);

// Parameter of mixup (Zhang et al. 2017): drawn from Beta(alpha, alpha).
double draw_mixup(double alpha, Random& random);

}  // namespace yoke::data
