#include "yoke/metrics/fanout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "yoke/metrics/test_folder.h"

namespace yoke::metrics {
namespace {

using ::testing::ElementsAre;

class Listener : public Sink {
 public:
  Listener(std::string name, std::vector<std::string>& heard) : name_(std::move(name)), heard_(heard) {}
  void start(const RunInfo& info) override { heard_.push_back(name_ + " start " + info.name); }
  void tick(int64_t step, double) override { heard_.push_back(name_ + " tick " + std::to_string(step)); }
  void write(const Record& record) override {
    heard_.push_back(name_ + " write " + std::to_string(record.step));
  }
  void finish() override { heard_.push_back(name_ + " finish"); }

 private:
  std::string name_;
  std::vector<std::string>& heard_;
};

TEST(Fanout, TellsEverySinkEverything) {
  std::vector<std::string> heard;
  Fanout fanout;
  fanout.add(std::make_unique<Listener>("a", heard));
  fanout.add(std::make_unique<Listener>("b", heard));
  fanout.start({.name = "run"});
  fanout.tick(1, 0);
  fanout.write(Record{.step = 2});
  fanout.finish();
  EXPECT_THAT(heard, ElementsAre("a start run", "b start run", "a tick 1", "b tick 1", "a write 2",
                                 "b write 2", "a finish", "b finish"));
}

int files_in(const std::filesystem::path& folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST(ToFiles, WritesWhatTheOptionsAskFor) {
  auto folder = fresh_folder();
  to_files(folder / "both", {})->start({});
  EXPECT_EQ(files_in(folder / "both"), 2);
  to_files(folder / "one", {.tensorboard = false})->start({});
  EXPECT_EQ(files_in(folder / "one"), 1);
  EXPECT_TRUE(std::filesystem::exists(folder / "one" / "metrics.jsonl"));
}

}  // namespace
}  // namespace yoke::metrics
