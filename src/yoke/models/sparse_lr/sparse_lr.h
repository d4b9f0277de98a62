// Logistic regression on sparse vectors: `weight` [features, 1] and `bias` [1], starting at zero.
//
// Inputs: a batch of rows, one after another: feature indices int64 [elements], their values [elements], and
// where each row begins, int64 [B], as embedding_bag takes them. Output: log odds [B]; target: 0 or 1, float
// [B].
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses features (4096).
Model make_sparse_lr(const ModelOptions& options);

}  // namespace yoke::models
