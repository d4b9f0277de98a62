#include "yoke/checkpoint/format/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/commit.h"
#include "yoke/checkpoint/format/safetensors.h"
#include "yoke/checkpoint/format/test_folder.h"

namespace yoke::checkpoint::format {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// A small checkpoint whose content tells its step, then prune, as a run does it.
void save(const fs::path& dir, int64_t step, int64_t keep = 2, const Failpoint& failpoint = nullptr) {
  std::vector<float> weights(100, static_cast<float>(step));
  std::vector<double> moments(10, static_cast<double>(step));
  Commit commit(dir, step, failpoint);
  commit.add("model.safetensors", {{"w", DType::kF32, {100}, weights.data(), 400}});
  commit.add("optimizer.safetensors", {{"m", DType::kF64, {10}, moments.data(), 80}});
  fs::path path = commit.commit({{"value", step}});
  std::set<fs::path> known_good{path};
  prune(dir, step, keep, known_good, failpoint);
}

std::vector<int64_t> steps(const std::vector<Verdict>& verdicts) {
  std::vector<int64_t> result;
  for (const Verdict& v : verdicts) result.push_back(v.ok ? v.step : -v.step);
  return result;
}

int64_t newest_step(const fs::path& dir) {
  Choice choice = newest_good(dir);
  return choice.newest ? choice.newest->step : -1;
}

TEST(Folder, ListsWhatWasSavedFromEveryKindOfFolder) {
  TestFolder out;
  save(out / "checkpoints", 9);
  save(out / "checkpoints", 10);
  EXPECT_THAT(steps(list(out.path())), ElementsAre(9, 10));
  EXPECT_THAT(steps(verify(out / "checkpoints")), ElementsAre(9, 10));
  EXPECT_THAT(steps(verify(out / "checkpoints/step-9")), ElementsAre(9));
  EXPECT_EQ(read_file(out / "checkpoints/latest"), "step-10\n");
  EXPECT_EQ(read_manifest(out / "checkpoints/step-9").state.at("value"), 9);
  EXPECT_GT(list(out.path())[0].bytes, 480u);
}

TEST(Folder, KeepsTheNewestAndRemovesLeftovers) {
  TestFolder out;
  for (int64_t step : {1, 2, 3}) save(out.path(), step);
  fs::create_directories(out / "step-7.tmp");
  fs::create_directories(out / "step-1.removed.tmp");
  save(out.path(), 4);
  EXPECT_THAT(steps(verify(out.path())), ElementsAre(3, 4));
  EXPECT_FALSE(fs::exists(out / "step-7.tmp"));
  EXPECT_FALSE(fs::exists(out / "step-1.removed.tmp"));
}

TEST(Folder, RemovesNothingGoodWhileTooFewGoodOnesAreNewer) {
  TestFolder out;
  save(out.path(), 1);
  save(out.path(), 2);
  flip_bit(out / "step-2/model.safetensors", 1000);
  save(out.path(), 3);
  EXPECT_THAT(steps(verify(out.path())), ElementsAre(1, -2, 3));
  save(out.path(), 4);
  EXPECT_THAT(steps(verify(out.path())), ElementsAre(3, 4));
}

TEST(Folder, TakesTheRunThatWasStartedAnewForTheNewest) {
  TestFolder out;
  for (int64_t step : {90, 100}) save(out.path(), step);
  save(out.path(), 10);
  EXPECT_THAT(steps(verify(out.path())), ElementsAre(10));
  EXPECT_TRUE(verify_one(out / "step-100.abandoned").ok);
  save(out.path(), 20);
  EXPECT_THAT(steps(verify(out.path())), ElementsAre(10, 20));
  EXPECT_FALSE(fs::exists(out / "step-100.abandoned"));
  EXPECT_FALSE(fs::exists(out / "step-90.abandoned"));
}

TEST(Folder, HasNoneWhereNothingWasSaved) {
  TestFolder out;
  EXPECT_FALSE(newest_good(out.path()).newest);
  EXPECT_FALSE(newest_good(out / "nowhere").newest);
  EXPECT_TRUE(list(out.path()).empty());
  EXPECT_THROW(list(out / "nowhere"), ConfigError);
}

TEST(Folder, KnowsStepNamesOnly) {
  EXPECT_EQ(step_of("step-12"), 12);
  EXPECT_EQ(step_of("step-00012"), 12);
  EXPECT_EQ(step_of("step-12.replaced"), 12);
  for (const char* name :
       {"step-", "step-12.tmp", "step--1", "step-x", "latest", "step-99999999999999999999"}) {
    EXPECT_EQ(step_of(name), std::nullopt) << name;
  }
}

TEST(Folder, PassesOverEveryFlippedBit) {
  TestFolder out;
  save(out.path(), 1);
  save(out.path(), 2);
  std::mt19937_64 random(1);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "manifest.json", "COMMITTED"}) {
    fs::path file = out / "step-2" / name;
    for (int i = 0; i < 50; ++i) {
      size_t bit = random() % (fs::file_size(file) * 8);
      flip_bit(file, bit);
      Choice choice = newest_good(out.path());
      ASSERT_EQ(choice.newest->step, 1) << name << " bit " << bit;
      ASSERT_EQ(choice.passed_over.size(), 1u);
      EXPECT_FALSE(choice.passed_over[0].problem.empty());
      flip_bit(file, bit);
    }
  }
  EXPECT_EQ(newest_step(out.path()), 2);
}

TEST(Folder, PassesOverEveryTruncatedFile) {
  TestFolder out;
  save(out.path(), 1);
  save(out.path(), 2);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "manifest.json", "COMMITTED"}) {
    fs::path file = out / "step-2" / name;
    std::string whole = read_file(file);
    for (size_t length = 0; length < whole.size(); length += 1 + whole.size() / 13) {
      overwrite_file(file, whole.substr(0, length));
      ASSERT_EQ(newest_step(out.path()), 1) << name << " cut at " << length;
    }
    fs::remove(file);
    ASSERT_EQ(newest_step(out.path()), 1) << name << " gone";
    overwrite_file(file, whole);
  }
  EXPECT_EQ(newest_step(out.path()), 2);
}

TEST(Folder, SaysWhatIsWrongWithEachOne) {
  TestFolder out;
  for (int64_t step : {1, 2, 3, 4, 5}) save(out.path(), step, 10);
  fs::remove(out / "step-2/COMMITTED");
  flip_bit(out / "step-3/model.safetensors", 2000);
  fs::resize_file(out / "step-4/optimizer.safetensors", 10);
  fs::rename(out / "step-5", out / "step-6");
  fs::create_directories(out / "step-7");
  auto verdicts = verify(out.path());
  ASSERT_THAT(steps(verdicts), ElementsAre(1, -2, -3, -4, -6, -7));
  EXPECT_THAT(verdicts[1].problem, HasSubstr("no COMMITTED file"));
  EXPECT_THAT(verdicts[2].problem,
              HasSubstr("model.safetensors: its content has changed since it was written"));
  EXPECT_THAT(verdicts[3].problem, HasSubstr("optimizer.safetensors: 10 bytes"));
  EXPECT_THAT(verdicts[4].problem, HasSubstr("manifest.json is of step 5"));
  EXPECT_EQ(newest_step(out.path()), 1);
  EXPECT_EQ(newest_good(out.path()).passed_over.size(), 5u);
}

// Runs save() in a child that dies at the k-th failpoint as if the power had failed. Returns how many points
// it passed when it survived, or -1.
int save_and_die(const fs::path& dir, int64_t step, int k) {
  pid_t child = ::fork();
  if (child == 0) {
    int passed = 0;
    save(dir, step, 2, [&](std::string_view) {
      if (++passed == k) ::raise(SIGKILL);
    });
    ::_exit(passed < 100 ? passed : 100);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Commit, SurvivesACrashAtEveryPoint) {
  int points = 0;
  for (int k = 1; points == 0; ++k) {
    TestFolder out;
    for (int64_t step : {1, 2}) save(out.path(), step);
    int survived = save_and_die(out.path(), 3, k);
    if (survived > 0) points = survived;
    int64_t newest = newest_step(out.path());
    EXPECT_TRUE(newest == 2 || newest == 3) << "crash at point " << k;
    EXPECT_TRUE(newest_good(out.path()).passed_over.empty()) << "crash at point " << k;
    save(out.path(), 3);
    EXPECT_THAT(steps(verify(out.path())), ElementsAre(2, 3)) << "after a crash at point " << k;
  }
  EXPECT_GE(points, 20);
}

TEST(Commit, SurvivesACrashAtEveryPointWhileReplacingTheOnlyCheckpoint) {
  bool done = false;
  for (int k = 1; !done; ++k) {
    TestFolder out;
    save(out.path(), 3);
    done = save_and_die(out.path(), 3, k) > 0;
    EXPECT_EQ(newest_step(out.path()), 3) << "crash at point " << k;
    // A second crash at the same place, on top of the first.
    save_and_die(out.path(), 3, k);
    EXPECT_EQ(newest_step(out.path()), 3) << "second crash at point " << k;
    save(out.path(), 3);
    EXPECT_THAT(steps(verify(out.path())), ElementsAre(3)) << "after a crash at point " << k;
    EXPECT_FALSE(fs::exists(out / "step-3.replaced"));
  }
}

TEST(Commit, FailsCleanlyAtEveryPoint) {
  bool done = false;
  for (int k = 1; !done; ++k) {
    TestFolder out;
    save(out.path(), 1);
    int passed = 0;
    try {
      save(out.path(), 2, 2, [&](std::string_view point) {
        if (++passed == k) throw ConfigError("injected at {}", point);
      });
      done = true;
    } catch (const ConfigError&) {
      EXPECT_FALSE(fs::exists(out / "step-2.tmp")) << "point " << k;
    }
    int64_t newest = newest_step(out.path());
    EXPECT_TRUE(newest == 1 || newest == 2) << "point " << k;
    save(out.path(), 3);
    EXPECT_EQ(newest_step(out.path()), 3);
  }
}

TEST(Commit, LeavesOldCheckpointsAloneOnAFullDisk) {
  TestFolder out;
  save(out.path(), 1);
  pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{300, 300};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save(out.path(), 2);
    } catch (const ConfigError& error) {
      std::string text = error.what();
      bool named = text.find("step-2.tmp/model.safetensors") != std::string::npos &&
                   text.find("free on") != std::string::npos;
      ::_exit(named ? 0 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(newest_step(out.path()), 1);
  EXPECT_FALSE(fs::exists(out / "step-2.tmp"));
}

TEST(Commit, NamesAFolderItCannotWriteInto) {
  try {
    save("/proc/yoke", 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/proc/yoke: cannot create the folder"));
  }
  TestFolder out;
  overwrite_file(out / "file", "");
  EXPECT_THROW(save(out / "file", 1), ConfigError);
  fs::permissions(out.path(), fs::perms::owner_read | fs::perms::owner_exec);
  if (::access(out.path().c_str(), W_OK) != 0) {  // root may write everywhere
    EXPECT_THROW(save(out / "sub", 1), ConfigError);
  }
  fs::permissions(out.path(), fs::perms::owner_all);
}

}  // namespace
}  // namespace yoke::checkpoint::format
