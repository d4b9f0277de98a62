// Optimizer steps on plain memory, for parameters without LibTorch (parameter servers).
//
// `gradient` is a sum of gradients, `weight` its factor. `from` holds the parameters, `to` gets the new ones;
// they may be the same memory but must not overlap otherwise. State arrays are updated in place. Formulas and
// order of rounding are those of torch.optim, where it has them. For float and double.
#pragma once

#include <cstdint>

namespace yoke::kernels {

struct SgdStep {
  double lr = 0;
  double momentum = 0;  // 0: `velocity` is not used
  bool nesterov = false;
  double weight_decay = 0;  // L2 term of the gradient
};

template <class T>
void sgd(const SgdStep& step, double weight, const T* gradient, const T* from, T* to, T* velocity,
         int64_t count);

struct AdamwStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // decoupled
  int64_t number = 1;       // of this step, from 1
};

template <class T>
void adamw(const AdamwStep& step, double weight, const T* gradient, const T* from, T* to, T* mean,
           T* mean_square, int64_t count);

struct AdagradStep {
  double lr = 0;
  double eps = 1e-10;
  double weight_decay = 0;  // L2 term of the gradient
};

template <class T>
void adagrad(const AdagradStep& step, double weight, const T* gradient, const T* from, T* to, T* sum,
             int64_t count);

// FTRL-proximal (McMahan et al., KDD 2013, algorithm 1) with alpha = lr: linear += g - sigma w with sigma =
// (sqrt(sum + g^2) - sqrt(sum)) / lr, sum += g^2; w = 0 where |linear| <= l1, else
// -(linear - sign(linear) l1) / ((beta + sqrt(sum)) / lr + l2). A weight without state (both 0) that is not 0
// gets the `linear` that stands for it. With lr = 0 nothing changes.
struct FtrlStep {
  double lr = 0;
  double beta = 1;
  double l1 = 0;
  double l2 = 0;
};

template <class T>
void ftrl(const FtrlStep& step, double weight, const T* gradient, const T* from, T* to, T* linear, T* sum,
          int64_t count);

// v = w - lr g, w = sign(v) max(0, |v| - lr l1) / (1 + lr l2).
struct ProximalStep {
  double lr = 0;
  double l1 = 0;
  double l2 = 0;
};

template <class T>
void proximal(const ProximalStep& step, double weight, const T* gradient, const T* from, T* to,
              int64_t count);

// Lion (Chen et al. 2023): w moves by lr in the direction of sign(beta1 m + (1 - beta1) g).
struct LionStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;  // decoupled
};

template <class T>
void lion(const LionStep& step, double weight, const T* gradient, const T* from, T* to, T* momentum,
          int64_t count);

// into[i] += scale * from[i].
template <class T>
void add_scaled(T* into, const T* from, double scale, int64_t count);

// Whether there are no NaN and infinity.
template <class T>
bool all_finite(const T* data, int64_t count);

// Sum of (a[i] - b[i])^2.
template <class T>
double squared_distance(const T* a, const T* b, int64_t count);

}  // namespace yoke::kernels
