#include "yoke/ps/batch_order.h"

#include <gtest/gtest.h>

#include "yoke/ps/archive.h"

namespace yoke::ps {
namespace {

TEST(BatchOrder, AWorkerKeepsItsBatchUntilItIsUsed) {
  BatchOrder order(2);
  EXPECT_EQ(order.give(0), 0);
  EXPECT_EQ(order.give(1), 1);
  EXPECT_EQ(order.give(0), 0);
  EXPECT_EQ(order.use(0), 0);
  EXPECT_EQ(order.use(0), -1);
  EXPECT_EQ(order.give(0), 2);
  EXPECT_EQ(order.counts().used, 1);
}

TEST(BatchOrder, WhatWasGivenBackIsHandedOutFirst) {
  BatchOrder order(4);
  for (int worker = 0; worker < 4; ++worker) order.give(worker);
  order.give_back(2);
  order.give_back(1);
  order.give_back(1);
  EXPECT_EQ(order.counts().given_back, 2);
  order.use(0);
  EXPECT_EQ(order.give(0), 1);
  order.use(3);
  EXPECT_EQ(order.give(3), 2);
  EXPECT_EQ(order.give(1), 4);
}

TEST(BatchOrder, CountsUpToWhereAllWereUsed) {
  BatchOrder order(3);
  for (int worker = 0; worker < 3; ++worker) order.give(worker);
  order.use(2);
  EXPECT_EQ(order.counts().complete, 0);
  order.use(0);
  EXPECT_EQ(order.counts().complete, 1);
  order.use(1);
  EXPECT_EQ(order.counts().complete, 3);
  EXPECT_EQ(order.counts().used, 3);
  EXPECT_EQ(order.counts().twice, 0);
}

TEST(BatchOrder, ACopyHandsOutTheSame) {
  BatchOrder order(3), copy(3);
  for (int worker = 0; worker < 3; ++worker) order.give(worker);
  order.use(2);
  order.give_back(0);
  Saver saver;
  order.exchange(saver);
  const std::vector<std::byte> state = saver.take();
  Loader loader(state);
  copy.exchange(loader);
  EXPECT_TRUE(copy.fits(3));
  EXPECT_TRUE(loader.at_end());
  for (int worker : {2, 0, 1}) EXPECT_EQ(copy.give(worker), order.give(worker));
  EXPECT_EQ(copy.counts().used, 1);
}

}  // namespace
}  // namespace yoke::ps
