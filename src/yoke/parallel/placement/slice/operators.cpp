// LibTorch's modules call their operators directly, and there are no hooks around forward() in C++. But every
// operator passes the dispatcher: kernels under a key that is on for this thread only see each call first,
// above autograd and autocast. Those of weights that are not sliced go on below the key; operators without a
// kernel here fall through at no cost.
#include "yoke/parallel/placement/slice/operators.h"

#include <torch/library.h>

#include "yoke/base/error.h"
#include "yoke/compute/interception.h"
#include "yoke/parallel/placement/slice/region.h"
#include "yoke/parallel/placement/slice/sliced_layers.h"
#include "yoke/parallel/placement/slice/sliced_weights.h"

namespace yoke::parallel {
namespace {

using torch::Tensor;
using MaybeTensor = std::optional<Tensor>;

constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// The last head on this thread whose logits were a slice of the vocabulary.
thread_local std::weak_ptr<const SlicedWeight> last_head;

struct Below {
  c10::impl::ExcludeDispatchKeyGuard guard{kKey};
};

Tensor dense(const SlicedWeightRef& slice, const Tensor& x, const Tensor& bias, bool as_linear) {
  if (slice->cut.cut == plan::TensorCut::kVocabulary) last_head = slice;
  return sliced_linear(slice, x, bias, as_linear);
}

Tensor linear(const Tensor& x, const Tensor& weight, const MaybeTensor& bias) {
  Below below;
  SlicedWeightRef slice = SlicedWeights::find(weight);
  if (slice == nullptr) return at::linear(x, weight, bias);
  return dense(slice, x, bias.value_or(Tensor()), weight.is_same(slice->weight));
}

Tensor matmul(const Tensor& x, const Tensor& matrix) {
  Below below;
  SlicedWeightRef slice = SlicedWeights::find(matrix);
  if (slice == nullptr) return at::matmul(x, matrix);
  return dense(slice, x, {}, !matrix.is_same(slice->weight));
}

Tensor addmm(const Tensor& bias, const Tensor& x, const Tensor& matrix, const at::Scalar& beta,
             const at::Scalar& alpha) {
  Below below;
  SlicedWeightRef slice = SlicedWeights::find(matrix);
  if (slice == nullptr || beta.toDouble() != 1 || alpha.toDouble() != 1)
    return at::addmm(bias, x, matrix, beta, alpha);
  return dense(slice, x, bias, !matrix.is_same(slice->weight));
}

std::vector<int64_t> pair_of(c10::SymIntArrayRef sizes) {
  std::vector<int64_t> values;
  for (const c10::SymInt& size : sizes) values.push_back(size.expect_int());
  if (values.size() == 1) values.push_back(values[0]);
  return values;
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const MaybeTensor& bias, c10::SymIntArrayRef stride,
              c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, c10::SymInt groups) {
  Below below;
  SlicedWeightRef slice = SlicedWeights::find(weight);
  if (slice == nullptr) return at::conv2d_symint(x, weight, bias, stride, padding, dilation, groups);
  return sliced_conv2d(slice, x, bias.value_or(Tensor()),
                       {pair_of(stride), pair_of(padding), pair_of(dilation), groups.expect_int()});
}

Tensor conv2d_named_padding(const Tensor& x, const Tensor& weight, const MaybeTensor& bias,
                            c10::SymIntArrayRef stride, c10::string_view padding,
                            c10::SymIntArrayRef dilation, c10::SymInt groups) {
  Below below;
  SlicedWeightRef slice = SlicedWeights::find(weight);
  if (slice == nullptr) return at::conv2d_symint(x, weight, bias, stride, padding, dilation, groups);
  std::vector<int64_t> spread = pair_of(dilation), sides = {0, 0};
  for (size_t d = 0; d < 2 && padding == "same"; ++d) {
    int64_t total = spread[d] * (weight.size(static_cast<int64_t>(d) + 2) - 1);
    if (total % 2 != 0)
      throw ConfigError(
          "tensor plan: layer '{}' pads unevenly (padding \"same\", an even kernel), which slices do not",
          slice->layer());
    sides[d] = total / 2;
  }
  return sliced_conv2d(slice, x, bias.value_or(Tensor()),
                       {pair_of(stride), sides, spread, groups.expect_int()});
}

Tensor embedding(const Tensor& weight, const Tensor& indices, c10::SymInt padding, bool by_frequency,
                 bool sparse) {
  Below below;
  SlicedWeightRef slice = SlicedWeights::find(weight);
  if (slice == nullptr) return at::embedding_symint(weight, indices, padding, by_frequency, sparse);
  if (by_frequency || sparse)
    throw ConfigError(
        "tensor plan: embedding '{}' is cut by vocabulary: no sparse gradients, nor scaled by frequency",
        slice->layer());
  return sliced_embedding(slice, indices, padding.expect_int());
}

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(const Tensor& weight, const Tensor& indices,
                                                         const Tensor& offsets, bool by_frequency,
                                                         int64_t mode, bool sparse,
                                                         const MaybeTensor& sample_weights,
                                                         bool include_last) {
  Below below;
  SlicedWeightRef slice = SlicedWeights::find(weight);
  if (slice == nullptr)
    return at::embedding_bag(weight, indices, offsets, by_frequency, mode, sparse, sample_weights,
                             include_last);
  if (by_frequency || sparse || mode != 0)
    throw ConfigError("tensor plan: '{}' is cut by vocabulary: its bags are summed, with dense gradients",
                      slice->layer());
  Tensor sums =
      sliced_embedding_bag(slice, indices, offsets, sample_weights.value_or(Tensor()), include_last);
  return {sums, Tensor(), Tensor(), Tensor()};
}

// [.., slice of the vocabulary].
SlicedWeightRef head_of(const Tensor& logits) {
  SlicedWeightRef head = last_head.lock();
  bool sliced = head != nullptr && logits.dim() >= 2 && logits.size(-1) == head->part.size();
  return sliced ? head : nullptr;
}

Tensor cross_entropy_loss(const Tensor& logits, const Tensor& target, const MaybeTensor& weight,
                          int64_t reduction, c10::SymInt ignored, double smoothing) {
  Below below;
  SlicedWeightRef head = logits.dim() == 2 ? head_of(logits) : nullptr;
  if (head == nullptr)
    return at::cross_entropy_loss_symint(logits, target, weight, reduction, ignored, smoothing);
  bool plain =
      smoothing == 0 && !(weight.has_value() && weight->defined()) && target.scalar_type() == at::kLong;
  if (!plain)
    throw ConfigError(
        "tensor plan: the logits of '{}' are cut by vocabulary: their cross entropy takes class numbers, "
        "without class weights or label smoothing",
        head->layer());
  return sliced_cross_entropy(head, logits, target, reduction, ignored.expect_int());
}

template <class Draw>
Tensor drawn(const Tensor& x, double p, Draw draw) {
  if (p == 0 || region() == nullptr) return draw();
  return with_random_of_rank(region()->rank(), x.device(), draw);
}

Tensor dropout(const Tensor& x, double p, bool train) {
  Below below;
  return drawn(x, train ? p : 0, [&] { return at::dropout(x, p, train); });
}

Tensor& dropout_(Tensor& x, double p, bool train) {
  Below below;
  drawn(x, train ? p : 0, [&] { return at::dropout_(x, p, train); });
  return x;
}

Tensor feature_dropout(const Tensor& x, double p, bool train) {
  Below below;
  return drawn(x, train ? p : 0, [&] { return at::feature_dropout(x, p, train); });
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const MaybeTensor& mask, double p,
                 bool causal, std::optional<double> scale, bool grouped) {
  Below below;
  return drawn(q, p,
               [&] { return at::scaled_dot_product_attention(q, k, v, mask, p, causal, scale, grouped); });
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("linear", linear);
  library.impl("matmul", matmul);
  library.impl("addmm", addmm);
  library.impl("conv2d", conv2d);
  library.impl("conv2d.padding", conv2d_named_padding);
  library.impl("embedding", embedding);
  library.impl("embedding_bag", embedding_bag);
  library.impl("cross_entropy_loss", cross_entropy_loss);
  library.impl("dropout", dropout);
  library.impl("dropout_", dropout_);
  library.impl("feature_dropout", feature_dropout);
  library.impl("scaled_dot_product_attention", attention);
}

thread_local int interceptions = 0;

bool active() {
  return c10::impl::tls_is_dispatch_key_included(kKey) && !c10::impl::tls_is_dispatch_key_excluded(kKey);
}

const compute::Interception kForLayers = {
    .weight = [](const Tensor& weight) { return active() && SlicedWeights::find(weight) != nullptr; },
    .logits = [](const Tensor& logits) { return active() && head_of(logits) != nullptr; },
    .sequence = [](int64_t length) -> compute::SequencePart {
      std::shared_ptr<TensorAxis> axis = sequence_axis();
      if (axis == nullptr || !active()) return {0, length};
      return {axis->rank() * (length / axis->size()), length / axis->size()};
    },
};

}  // namespace

OperatorInterception::OperatorInterception() {
  compute::set_interception(&kForLayers);
  if (interceptions++ == 0) c10::impl::tls_set_dispatch_key_included(kKey, true);
}

OperatorInterception::~OperatorInterception() {
  if (--interceptions > 0) return;
  c10::impl::tls_set_dispatch_key_included(kKey, false);
  set_region(nullptr);
}

}  // namespace yoke::parallel
