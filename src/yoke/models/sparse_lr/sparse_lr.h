// Logistic regression on sparse vectors: `weight` [features, 1] and `bias` [1], initialised to zero.
//
// Inputs: a batch of concatenated rows: feature indices int64 [elements], their values [elements], and row
// offsets int64 [B], as for embedding_bag. Output: log odds [B]; target: 0 or 1, float [B].
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses features (4096).
Model make_sparse_lr(const ModelOptions& options);

}  // namespace yoke::models
