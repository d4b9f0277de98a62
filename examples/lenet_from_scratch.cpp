// LeNet-5 on plain tensors, data parallel by hand: split, forward, backward, all-reduce, update.
//   build/yoke run --nproc 2 build/example_lenet_from_scratch
// No autograd, no module, no optimizer: every gradient is written out. lenet_with_yoke.cpp is the same
// training with the library, and prints the same loss.
#include <yoke/yoke.h>

#include <cstdio>

using torch::Tensor;

// A value to learn, its gradient, and the running sum of gradients that momentum adds up.
struct Parameter {
  explicit Parameter(std::vector<int64_t> shape) : value(torch::empty(shape)), velocity(torch::zeros(shape)) {
    value.normal_(0, 0.1);
  }
  Tensor value, grad, velocity;
};

// Every output pixel is a weighted sum of the 5x5 patch below it: a matrix product over all patches.
struct Conv {
  Conv(int64_t in, int64_t out, int64_t pad) : weight({out, in * 25}), bias({out}), padding({pad, pad}) {}

  Tensor forward(const Tensor& x) {  // [N, in, H, W] to [N, out, H', W']
    size = {x.size(2), x.size(3)};
    patches =
        at::im2col(x, {5, 5}, /*dilation=*/{1, 1}, padding, /*stride=*/{1, 1});  // [N, in * 25, H' * W']
    const int64_t side = size[0] + 2 * padding[0] - 4;
    return (weight.value.matmul(patches) + bias.value.view({-1, 1})).view({x.size(0), -1, side, side});
  }
  // From the gradient of the output to those of weight, bias and (returned) input.
  Tensor backward(const Tensor& grad) {
    const Tensor g = grad.flatten(2);  // [N, out, H' * W']
    weight.grad = g.matmul(patches.transpose(1, 2)).sum(0);
    bias.grad = g.sum(at::IntArrayRef({0, 2}));
    return at::col2im(weight.value.t().matmul(g), size, {5, 5}, {1, 1}, padding, {1, 1});
  }
  Parameter weight, bias;
  std::vector<int64_t> padding, size;
  Tensor patches;
};

struct Linear {
  Linear(int64_t in, int64_t out) : weight({out, in}), bias({out}) {}

  Tensor forward(const Tensor& x) {  // [N, in] to [N, out]
    input = x;
    return x.matmul(weight.value.t()) + bias.value;
  }
  Tensor backward(const Tensor& grad) {
    weight.grad = grad.t().matmul(input);
    bias.grad = grad.sum(0);
    return grad.matmul(weight.value);
  }
  Parameter weight, bias;
  Tensor input;
};

// ReLU passes the gradient where its input was positive; the mean of 2x2 pixels gives each a quarter of it.
Tensor relu_backward(const Tensor& output, const Tensor& grad) {
  return grad * (output > 0);
}
Tensor pool(const Tensor& x) {
  return x.view({x.size(0), x.size(1), x.size(2) / 2, 2, x.size(3) / 2, 2}).mean(at::IntArrayRef({3, 5}));
}
Tensor pool_backward(const Tensor& grad) {
  return grad.repeat_interleave(2, 2).repeat_interleave(2, 3) / 4;
}

struct LeNet {
  Conv conv1{1, 6, 2}, conv2{6, 16, 0};
  Linear fc1{400, 120}, fc2{120, 84}, fc3{84, 10};
  Tensor a1, a2, a3, a4;  // activations, kept for backward

  Tensor forward(const Tensor& x) {
    a1 = conv1.forward(x).relu();
    a2 = conv2.forward(pool(a1)).relu();
    a3 = fc1.forward(pool(a2).flatten(1)).relu();
    a4 = fc2.forward(a3).relu();
    return fc3.forward(a4);
  }
  void backward(const Tensor& grad) {
    const Tensor g3 = relu_backward(a3, fc2.backward(relu_backward(a4, fc3.backward(grad))));
    const Tensor g2 = pool_backward(fc1.backward(g3).view({-1, 16, 5, 5}));
    conv1.backward(relu_backward(a1, pool_backward(conv2.backward(relu_backward(a2, g2)))));
  }
  std::vector<Parameter*> parameters() {
    return {&conv1.weight, &conv1.bias, &conv2.weight, &conv2.bias, &fc1.weight,
            &fc1.bias,     &fc2.weight, &fc2.bias,     &fc3.weight, &fc3.bias};
  }
};

int main() try {
  torch::NoGradGuard no_autograd;
  yoke::World world = yoke::join();
  torch::manual_seed(1);  // the same data and weights on every rank
  const Tensor labels = torch::randint(10, {2048});
  const Tensor images =
      torch::randn({10, 1, 28, 28}).index_select(0, labels) + torch::randn({2048, 1, 28, 28});
  torch::manual_seed(2);
  LeNet net;
  constexpr int64_t kBatch = 64;
  for (int64_t step = 0; step < 64; ++step) {
    // Split: the batch is the same everywhere, each rank takes its part.
    const int64_t each = kBatch / world.size(), first = step * kBatch % 2048 + each * world.rank();
    const Tensor x = images.narrow(0, first, each), y = labels.narrow(0, first, each);
    // Forward, and the loss: the mean of -log(probability of the right class).
    const Tensor probabilities = net.forward(x).softmax(1);
    Tensor loss = -probabilities.gather(1, y.view({-1, 1})).log().sum() / kBatch;
    // Backward: the gradient of that loss is the probabilities, less 1 for the right class.
    net.backward((probabilities - torch::one_hot(y, 10)) / kBatch);
    // All-reduce: the sum over ranks is the gradient of the whole batch. One message for all of it.
    std::vector<Tensor> grads;
    for (Parameter* one : net.parameters()) grads.push_back(one->grad.flatten());
    Tensor all = torch::cat(grads);
    yoke::comm::all_reduce(world.comm(), all, yoke::ReduceOp::kSum, "gradients");
    // Update: SGD with momentum, the same on every rank.
    int64_t at = 0;
    for (Parameter* one : net.parameters()) {
      one->velocity.mul_(0.9).add_(all.narrow(0, at, one->value.numel()).view_as(one->value));
      one->value.sub_(0.02 * one->velocity);
      at += one->value.numel();
    }
    if (step % 16 < 15) continue;
    yoke::comm::all_reduce(world.comm(), loss, yoke::ReduceOp::kSum, "loss");
    if (world.rank() == 0)
      std::printf("%d ranks: loss %.3f after %ld steps\n", world.size(), loss.item<double>(), long(step + 1));
  }
} catch (const yoke::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return static_cast<int>(error.code());
}
