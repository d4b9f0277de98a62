#include "yoke/collab/options.h"

#include "yoke/base/text.h"
#include "yoke/base/units.h"

namespace yoke::collab {

std::string check_bandwidth(const std::string& text) {
  if (text == "auto") return "";
  const LinkSpeed speed = parse_bandwidth(text);
  if (speed.upload > 0 && speed.download > 0) return "";
  return "auto, a rate above 0 such as 20mbit, or upload,download such as 5mbit,50mbit";
}

LinkSpeed parse_bandwidth(const std::string& text) {
  const std::vector<std::string> words = split(text, ',');
  auto rate = [](const std::string& word) { return parse_rate(word).value_or(0); };
  if (words.size() == 2) return {rate(words[0]), rate(words[1])};
  return {rate(text), rate(text)};
}

}  // namespace yoke::collab
