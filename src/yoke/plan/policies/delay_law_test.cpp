#include "yoke/plan/policies/delay_law.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// A file that is gone at the end of the test.
struct TraceFile {
  explicit TraceFile(const std::string& content)
      : path(std::filesystem::temp_directory_path() / ("yoke,trace-" + std::to_string(::getpid()))) {
    write_file_atomically(path, content);
  }
  ~TraceFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  std::filesystem::path path;
};

TEST(DelayLaw, ReadsEveryForm) {
  EXPECT_EQ(parse_delay_law("none").kind, DelayLaw::Kind::kNone);
  EXPECT_EQ(parse_delay_law("const:2x").scale, 2);
  EXPECT_EQ(parse_delay_law("const:1.5").scale, 1.5);
  EXPECT_DOUBLE_EQ(parse_delay_law("exp:5ms").scale, 5e-3);
  DelayLaw shifted = parse_delay_law("shifted_exp:1ms, 2s");
  EXPECT_DOUBLE_EQ(shifted.shift, 1e-3);
  EXPECT_DOUBLE_EQ(shifted.scale, 2);
  DelayLaw pareto = parse_delay_law("pareto:1ms,3");
  EXPECT_DOUBLE_EQ(pareto.scale, 1e-3);
  EXPECT_EQ(pareto.shape, 3);
  for (const char* text : {"none", "const:2x", "exp:5ms", "shifted_exp:0s,7us", "pareto:0.1s,1.25"}) {
    std::string shown = to_string(parse_delay_law(text));
    EXPECT_EQ(to_string(parse_delay_law(shown)), shown);
  }
}

TEST(DelayLaw, SaysWhatIsWrong) {
  auto reading = [](const char* text) { return [=] { parse_delay_law(text); }; };
  EXPECT_THAT(reading("gauss:1"),
              ThrowsMessage<ConfigError>(HasSubstr("'gauss:1' is unknown. Accepted: none")));
  EXPECT_THAT(reading(""), ThrowsMessage<ConfigError>(HasSubstr("shifted_exp:SHIFT,MEAN")));
  EXPECT_THAT(reading("none:1"), ThrowsMessage<ConfigError>(HasSubstr("the form is none")));
  EXPECT_THAT(reading("exp"), ThrowsMessage<ConfigError>(HasSubstr("the form is exp:MEAN")));
  EXPECT_THAT(reading("exp:1ms,2ms"), ThrowsMessage<ConfigError>(HasSubstr("the form is exp:MEAN")));
  EXPECT_THAT(reading("exp:5parsec"), ThrowsMessage<ConfigError>(HasSubstr("mean '5parsec' is not a time")));
  EXPECT_THAT(reading("exp:5"), ThrowsMessage<ConfigError>(HasSubstr("'5' has no unit. Accepted: 5ms, 5s")));
  EXPECT_THAT(reading("shifted_exp:1ms,0.5"),
              ThrowsMessage<ConfigError>(HasSubstr("mean '0.5' has no unit")));
  EXPECT_THAT(reading("exp:0"), ThrowsMessage<ConfigError>(HasSubstr("above 0")));
  EXPECT_THAT(reading("exp:-1ms"), ThrowsMessage<ConfigError>(HasSubstr("'-1ms'")));
  EXPECT_THAT(reading("exp:inf"), ThrowsMessage<ConfigError>(HasSubstr("not a time")));
  EXPECT_THAT(reading("const:0.5x"), ThrowsMessage<ConfigError>(HasSubstr("at least 1x")));
  EXPECT_THAT(reading("const:x"), ThrowsMessage<ConfigError>(HasSubstr("not a factor")));
  EXPECT_THAT(reading("const:nanx"), ThrowsMessage<ConfigError>(HasSubstr("not a factor")));
  EXPECT_THAT(reading("pareto:1ms"), ThrowsMessage<ConfigError>(HasSubstr("pareto:SCALE,SHAPE")));
  EXPECT_THAT(reading("pareto:1ms,1"), ThrowsMessage<ConfigError>(HasSubstr("the mean is infinite")));
  EXPECT_THAT(reading("trace:"), ThrowsMessage<ConfigError>(HasSubstr("trace:FILE")));
  EXPECT_THAT(reading("trace:/no/such/file"), ThrowsMessage<ConfigError>(HasSubstr("/no/such/file")));
}

TEST(DelayLaw, ReadsTraces) {
  TraceFile good("# recorded on a busy day\n1ms\n\n 2ms # a hiccup\r\n0.003");
  DelayLaw law = parse_delay_law("trace:" + good.path.string());
  EXPECT_THAT(*law.trace, ElementsAre(1e-3, 2e-3, 3e-3));
  EXPECT_DOUBLE_EQ(law.mean(1), 2e-3);
  DelayStream stream(law, 1, 0);
  double sum = 0;
  for (int i = 0; i < 6; ++i) sum += stream.next(0);
  EXPECT_NEAR(sum, 12e-3, 1e-12) << "over and over";
}

TEST(DelayLaw, NamesTheBadLineOfATrace) {
  TraceFile bad("1ms\nsoon\n");
  EXPECT_THAT([&] { parse_delay_law("trace:" + bad.path.string()); },
              ThrowsMessage<ConfigError>(HasSubstr(bad.path.string() + ":2: 'soon' is not a time")));
  TraceFile empty("# nothing\n\n");
  EXPECT_THAT([&] { parse_delay_law("trace:" + empty.path.string()); },
              ThrowsMessage<ConfigError>(HasSubstr("holds no times")));
}

TEST(DelayLaw, DrawsWhatItSays) {
  constexpr int kDraws = 200'000;
  struct {
    const char* law;
    double deviation, lowest;  // of one draw
  } laws[] = {{"exp:2s", 2, 0}, {"shifted_exp:1s,2s", 2, 1}, {"pareto:1s,4", 0.4714, 1}};
  for (const auto& [text, deviation, lowest] : laws) {
    DelayLaw law = parse_delay_law(text);
    DelayStream stream(law, 5, 3);
    double sum = 0, least = 1e9;
    int above = 0;
    for (int i = 0; i < kDraws; ++i) {
      double delay = stream.next(7);
      sum += delay;
      least = std::min(least, delay);
      above += delay > 3;
    }
    EXPECT_NEAR(sum / kDraws, law.mean(7), 5 * deviation / std::sqrt(kDraws)) << text;
    EXPECT_GE(least, lowest);
    double tail = law.kind == DelayLaw::Kind::kPareto ? std::pow(3.0, -4) : std::exp(-(3 - lowest) / 2);
    EXPECT_NEAR(above / double{kDraws}, tail, 5 * std::sqrt(tail / kDraws)) << text;
  }
  DelayStream twice(parse_delay_law("const:2.5x"), 1, 0);
  EXPECT_DOUBLE_EQ(twice.next(2), 3) << "on top of the 2 s it takes anyway";
  EXPECT_EQ(DelayStream(DelayLaw(), 1, 0).next(2), 0);
}

TEST(DelayLaw, StreamsDependOnSeedAndWorkerAlone) {
  DelayLaw law = parse_delay_law("exp:1s");
  DelayStream a(law, 1, 2), b(law, 1, 2), other_worker(law, 1, 3), other_seed(law, 2, 2);
  double first = a.next(0);
  EXPECT_EQ(first, b.next(9));
  EXPECT_NE(first, other_worker.next(0));
  EXPECT_NE(first, other_seed.next(0));
}

TEST(DelayLaw, ChoosesWorkers) {
  EXPECT_THAT(parse_slow_workers("--w", "", 3), ElementsAre(true, true, true));
  EXPECT_THAT(parse_slow_workers("--w", "2, 0", 3), ElementsAre(true, false, true));
  for (const char* bad : {"3", "-1", "1,x", "1.5", "1,,2"})
    EXPECT_THAT([&] { parse_slow_workers("--w", bad, 3); },
                ThrowsMessage<ConfigError>(HasSubstr("numbers from 0 to 2")))
        << bad;
}

}  // namespace
}  // namespace yoke::plan
