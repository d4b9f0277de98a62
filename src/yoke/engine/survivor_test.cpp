#include "yoke/engine/survivor.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::engine {
namespace {

// A state after `step` steps, whose numbers tell who made it.
checkpoint::State state_of(int64_t step, double value, double buffer) {
  checkpoint::State state;
  state.model = {{"weight", torch::full({3, 2}, value)}, {"mean", torch::full({2}, buffer)}};
  state.optimizer = {{"momentum/weight", torch::full({3, 2}, 10 * value, torch::kFloat64)},
                     {"steps", torch::full({1}, step, torch::kInt64)}};
  state.rest = {{"step", step}, {"samples", 8 * step}, {"buffers", {{"mean", true}}}};
  return state;
}

TEST(Survivor, EqualStatesStayAndBuffersBecomeThoseOfOne) {
  comm::run_ranks(3, [](comm::Communicator& comm) {
    std::optional<checkpoint::State> own = state_of(7, 1, comm.rank());
    void* memory = own->model[0].second.data_ptr();
    Agreement agreed = agree_on_state(own, comm);
    EXPECT_EQ(agreed.step, 7);
    EXPECT_FALSE(agreed.moved);
    EXPECT_EQ(own->model[0].second.data_ptr(), memory) << "nothing was sent";
    EXPECT_EQ(own->model[1].second[0].item<double>(), 0);
  });
}

TEST(Survivor, WhoIsAStepBehindReceivesTheNewest) {
  comm::run_ranks(3, [](comm::Communicator& comm) {
    const bool ahead = comm.rank() > 0;
    std::optional<checkpoint::State> own = state_of(ahead ? 8 : 7, ahead ? 2 : 1, comm.rank());
    Agreement agreed = agree_on_state(own, comm);
    EXPECT_EQ(agreed.step, 8);
    EXPECT_EQ(agreed.source, 1);
    EXPECT_TRUE(agreed.moved);
    EXPECT_TRUE(torch::equal(own->model[0].second, torch::full({3, 2}, 2.0)));
    EXPECT_TRUE(torch::equal(own->model[1].second, torch::full({2}, 1.0)));
    EXPECT_TRUE(torch::equal(own->optimizer[0].second, torch::full({3, 2}, 20, torch::kFloat64)));
    EXPECT_EQ(own->rest.at("samples"), 64);
  });
}

// The others may go on with what they have.
TEST(Survivor, OnlyThoseBehindReceive) {
  comm::run_ranks(4, [](comm::Communicator& comm) {
    std::optional<checkpoint::State> own;
    if (comm.rank() < 3) own = state_of(comm.rank() == 1 ? 4 : 5, 3, comm.rank());
    void* memory = own ? own->model[0].second.data_ptr() : nullptr;
    EXPECT_EQ(agree_on_state(own, comm).source, 0);
    EXPECT_EQ(own->model[0].second.data_ptr() == memory, comm.rank() == 0 || comm.rank() == 2);
    EXPECT_TRUE(torch::equal(own->model[0].second, torch::full({3, 2}, 3.0)));
    EXPECT_EQ(own->model[1].second[0].item<double>(), 0) << "buffers are those of rank 0";
    EXPECT_EQ(own->optimizer[1].second.item<int64_t>(), 5);
  });
}

TEST(Survivor, WhoJoinsReceivesEverything) {
  comm::run_ranks(3, [](comm::Communicator& comm) {
    std::optional<checkpoint::State> own;
    if (comm.rank() != 2) own = state_of(5, 3, 0);
    agree_on_state(own, comm);
    ASSERT_TRUE(own);
    EXPECT_EQ(own->optimizer[1].first, "steps");
    EXPECT_EQ(own->optimizer[1].second.item<int64_t>(), 5);
    EXPECT_TRUE(torch::equal(own->model[0].second, torch::full({3, 2}, 3.0)));
  });
}

// A rank that dies while the state is sent: those that had one keep it, those that had none still have none.
TEST(Survivor, ALossMeanwhileLeavesWhatARankHad) {
  std::optional<checkpoint::State> states[3] = {state_of(8, 2, 0), state_of(7, 1, 1), std::nullopt};
  EXPECT_ANY_THROW(comm::run_ranks(3, [&](comm::Communicator& comm) {
    if (comm.rank() == 2) {
      parallel::gather_json({{"step", -1}}, &comm);
      parallel::gather_json(nullptr, &comm);
      throw CommError("lost");
    }
    agree_on_state(states[comm.rank()], comm);
  }));
  EXPECT_EQ(states[0]->rest.at("step"), 8);
  EXPECT_EQ(states[1]->rest.at("step"), 7);
  EXPECT_TRUE(torch::equal(states[1]->model[0].second, torch::full({3, 2}, 1.0)));
}

TEST(Survivor, NobodyHasAState) {
  comm::run_ranks(2, [](comm::Communicator& comm) {
    std::optional<checkpoint::State> own;
    EXPECT_LT(agree_on_state(own, comm).source, 0);
    EXPECT_FALSE(own);
  });
}

}  // namespace
}  // namespace yoke::engine
