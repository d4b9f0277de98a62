#include <gtest/gtest.h>

#include <vector>

#include "yoke/base/error.h"
#include "yoke/ps/entries.h"
#include "yoke/ps/sparse/rules.h"
#include "yoke/ps/sparse/tables.h"

namespace yoke::ps::sparse {
namespace {

class Copy {
 public:
  Copy() : tables_({.make_rule = [](int) { return make_rule({}); }, .serves = false}) {
    make(EntryWriter(Change::kTableOpen).put(OpenTableHead{.keys = 100}).take());
  }
  void part(const std::vector<Key>& keys) {
    const std::vector<float> ones(keys.size(), 1);
    make(EntryWriter(Change::kTablePart)
             .put(TableChange{.keys = static_cast<int64_t>(keys.size()), .first = 1})
             .put_bytes(std::as_bytes(std::span(keys)))
             .put_bytes(std::as_bytes(std::span(ones)))
             .take());
  }
  void update(int64_t number, int64_t keys) {
    make(EntryWriter(Change::kTableUpdate)
             .put(TableUpdateChange{.number = number, .version = number, .lr = 1, .weight = 1, .keys = keys})
             .take());
  }
  size_t rows() const { return tables_.numbers().rows; }

 private:
  void make(const std::vector<std::byte>& entry) {
    EntryReader reader(entry);
    const auto kind = reader.get<Change>();
    tables_.change(reader, kind);
  }
  Tables tables_;
};

TEST(TablesCopies, AnUpdateAppliesTheSumThatWasLoggedBeforeIt) {
  Copy copy;
  copy.part({3, 7});
  copy.update(1, 2);
  EXPECT_EQ(copy.rows(), 2u);
}

TEST(TablesCopies, PartsThatALostServerDidNotCompleteAreVoid) {
  Copy copy;
  copy.part({3, 7});
  copy.update(1, 0);  // of the server that took over: no row was touched
  copy.update(2, 0);
  EXPECT_EQ(copy.rows(), 0u);
}

TEST(TablesCopies, AnUpdateWhoseSumIsIncompleteIsRefused) {
  Copy copy;
  copy.part({3, 7});
  EXPECT_THROW(copy.update(1, 3), CommError);
}

}  // namespace
}  // namespace yoke::ps::sparse
