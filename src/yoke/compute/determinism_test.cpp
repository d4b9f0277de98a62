#include "yoke/compute/determinism.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace yoke::compute {
namespace {

TEST(Determinism, FixesWhatLibrariesChooseAndLetsGoAgain) {
  at::Context& context = at::globalContext();
  set_deterministic(true);
  EXPECT_TRUE(is_deterministic());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly()) << "cuDNN's attention would be taken";
  EXPECT_TRUE(context.deterministicCuDNN());
  EXPECT_FALSE(context.benchmarkCuDNN());
  EXPECT_FALSE(context.deterministicFillUninitializedMemory());
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  set_deterministic(false);
  EXPECT_FALSE(is_deterministic());
  EXPECT_TRUE(context.benchmarkCuDNN());
}

}  // namespace
}  // namespace yoke::compute
