#include "yoke/cluster/launcher/requeue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::cluster {
namespace {

using testing::HasSubstr;

// The text of the ConfigError that `run` throws.
template <class Run>
std::string refusal(const Run& run) {
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

auto reader(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) {
    auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
}

// A program with the name of scontrol that runs `script`.
class Requeue : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "yoke_requeue_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  SlurmJob job_with(const std::string& script) const {
    const std::filesystem::path program = folder_ / "scontrol";
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    return {"17", true, true, program.string()};
  }

  Guardian guardian_;
  sigset_t mask_{};
  std::filesystem::path folder_;
};

TEST_F(Requeue, AsksScontrolOnce) {
  requeue(job_with("echo \"$@\" >> " + (folder_ / "asked").string()), mask_, guardian_);
  EXPECT_EQ(read_file((folder_ / "asked").string(), 100), "requeue 17\n");
}

TEST_F(Requeue, NamesWhatScontrolSaysWhenItFails) {
  const SlurmJob job = job_with("echo 'Requested operation is presently disabled' >&2; exit 1");
  EXPECT_THAT(
      refusal([&] { requeue(job, mask_, guardian_); }),
      HasSubstr("`scontrol requeue 17` exited with code 1: Requested operation is presently disabled. "));
}

TEST_F(Requeue, KillsAScontrolThatHangs) {
  const SlurmJob job = job_with("exec sleep 600");
  EXPECT_THAT(refusal([&] { requeue(job, mask_, guardian_, 0.2); }), HasSubstr("did not end within"));
}

TEST(SlurmJob, IsRefusedOutsideOfSlurm) {
  EXPECT_THAT(refusal([] { find_slurm_job(reader({})); }), HasSubstr("SLURM_JOB_ID is not set"));
}

TEST(SlurmJob, IsRequeuedByItsFirstLauncherOnly) {
  const SlurmJob job =
      find_slurm_job(reader({{"SLURM_JOB_ID", "17"}, {"SLURM_PROCID", "1"}, {"SLURM_JOB_NUM_NODES", "2"}}));
  EXPECT_FALSE(job.first);
  EXPECT_FALSE(job.whole);
}

}  // namespace
}  // namespace yoke::cluster
