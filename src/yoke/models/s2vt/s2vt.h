// S2VT (Venugopalan et al. 2015): video in, words out, by two stacked LSTMs.
//
// Inputs: frames [B, frames, features] and the words before those to be said, int64 [B, words] (the first is
// the begin mark); output: logits [B, words, vocabulary]; target: the words, int64 [B, words].
//
// While it watches, LSTM 1 reads embedded frames and LSTM 2 reads LSTM 1's output beside zeros; while it
// speaks, LSTM 1 reads zeros and LSTM 2 reads LSTM 1's output beside the word before. Training knows all
// words, so each LSTM runs over both stages at once.
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses width (512), vocabulary (3000), frames (16), features (1024), words (12).
Model make_s2vt(const ModelOptions& options);

}  // namespace yoke::models
