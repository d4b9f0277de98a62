#include "yoke/engine/out_of_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/types.h>

#include <new>

#include "yoke/compute/memory_room.h"
#include "yoke/engine/synthetic_batches.h"

namespace yoke::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(OutOfMemory, IsToldFromOtherErrors) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling")));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("DefaultCPUAllocator: can't allocate memory: you tried")));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("CUDA error: an illegal memory access was encountered")));
  try {
    torch::empty({int64_t{1} << 50});
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_out_of_memory(error)) << error.what();
  }
}

TEST(OutOfMemory, KnowsWhatWasAskedFor) {
  EXPECT_EQ(requested_bytes("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has"), 2684354560);
  EXPECT_EQ(requested_bytes("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0"), 20971520);
  EXPECT_EQ(requested_bytes("can't allocate memory: you tried to allocate 4000 bytes. Error"), 4000);
  EXPECT_EQ(requested_bytes("out of memory: cannot allocate 123 bytes for a tensor on the CPU."), 123);
  EXPECT_EQ(requested_bytes("std::bad_alloc"), std::nullopt);
}

// While it lives, this process can map so much more.
class AddressSpace {
 public:
  explicit AddressSpace(int64_t more) {
    getrlimit(RLIMIT_AS, &before_);
    rlimit tight = before_;
    tight.rlim_cur = static_cast<rlim_t>(compute::status_bytes("VmSize:") + more);
    setrlimit(RLIMIT_AS, &tight);
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

WorkerOptions wide_mlp(int64_t batch) {
  WorkerOptions options;
  options.model.name = "mlp";
  options.model.sizes = {32, 20000, 10};  // one large activation, and little to compute
  options.optimizer.optimizer = "adamw";
  options.compute.threads = 1;
  options.batch_size = batch;
  return options;
}

// The advice is right: what it names fits, in the memory in which what was asked did not.
TEST(OutOfMemory, NamesABatchThatFits) {
  WorkerOptions options = wide_mlp(8192);
  auto worker = make_worker(options);
  auto step = [&](int64_t batch) {
    data::Batch one = synthetic_batches(*worker, batch)[0];
    worker->strategy->acquire();
    worker->strategy->compute(one.inputs, one.target, {});
    worker->strategy->commit({0.01, false});
  };
  step(4);
  std::string message;
  int64_t advised = 0;
  {
    AddressSpace tight(420 << 20);
    try {
      step(options.batch_size);
    } catch (const std::exception& error) {
      ASSERT_TRUE(is_out_of_memory(error)) << error.what();
      message = describe_out_of_memory(error, "in step 1", *worker, options);
    }
    size_t at = message.find("data.batch_size = ");
    ASSERT_NE(at, std::string::npos) << message;
    advised = std::stoll(message.substr(at + 18));
    EXPECT_NO_THROW(step(advised)) << message;
  }
  EXPECT_GE(advised, 512) << message;
  EXPECT_LT(advised, options.batch_size) << message;
  EXPECT_THAT(message,
              AllOf(HasSubstr("out of memory on cpu in step 1"), HasSubstr("allocation of"),
                    HasSubstr("Weights take"), HasSubstr("optimizer state"), HasSubstr("per sample")));
}

}  // namespace
}  // namespace yoke::engine
