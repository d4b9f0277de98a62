#include "cli/keys_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string name_of(const std::string& word) {
  return word.substr(0, word.find('='));
}

TEST(KeysRead, ACommandRefusesWhatItDoesNotUse) {
  auto reading = [](const char* command, const std::string& word) {
    const config::Override change = {name_of(word), word.substr(word.find('=') + 1), "--" + name_of(word)};
    return [=] { refuse_unread_keys(command, {change}); };
  };
  for (auto [command, word] : {std::pair("model info", "train.lr=1"),
                               {"model export", "data.name=mnist"},
                               {"eval", "ps.k=2"},
                               {"eval", "train.lr=1"},
                               {"profile", "out.dir=x"},
                               {"estimate", "parallel.zero=1"},
                               {"estimate", "data.workers=3"},
                               {"bench step", "parallel.zero=1"},
                               {"bench step", "train.precision=bf16"},
                               {"bench scaling", "out.dir=x"},
                               {"bench scaling", "parallel.sync=ps"},
                               {"verify", "train.schedule=cosine"},
                               {"verify", "ps.place=colocated"},
                               {"verify", "checkpoint.keep=3"},
                               {"lab stragglers", "ps.policy=sync"}})
    EXPECT_THAT(reading(command, word), ThrowsMessage<ConfigError>(HasSubstr(name_of(word)))) << command;
  for (auto [command, word] : {std::pair("model info", "model.classes=3"),
                               {"model export", "train.seed=3"},
                               {"eval", "data.limit=3"},
                               {"bench step", "train.optimizer=adamw"},
                               {"bench step", "train.deterministic=true"},
                               {"bench scaling", "train.deterministic=true"},
                               {"bench scaling", "ddp.hook=fp16"},
                               {"verify", "train.clip_norm=1"},
                               {"lab stragglers", "train.steps=3"},
                               {"train", "out.dir=x"},
                               {"config show", "ps.k=1"}})
    EXPECT_NO_THROW(reading(command, word)()) << command << " " << word;
}

}  // namespace
}  // namespace yoke::cli
