// SAX parser of a safetensors header's JSON. Used by safetensors.cpp only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "yoke/checkpoint/format/safetensors.h"

namespace yoke::checkpoint::format {

// Fills `header`; throws ConfigError for anything other than {name: {dtype, shape, data_offsets}} or
// {"__metadata__": {text: text}}.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(SafetensorsHeader& header, const std::string& file) : header_(header), file_(file) {}

  bool null() override { return refuse_value("null"); }
  bool boolean(bool) override { return refuse_value("true or false"); }
  bool number_integer(int64_t value) override;
  bool number_unsigned(uint64_t value) override;
  bool number_float(double, const std::string& text) override;
  bool string(std::string& value) override;
  bool binary(nlohmann::json::binary_t&) override { return refuse_value("binary data"); }
  bool start_object(size_t) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool key(std::string& name) override;
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::json::exception& error) override;

 private:
  enum class Place { kOutside, kTop, kTensor, kMetadata, kShape, kOffsets };
  enum class Field { kNone, kDtype, kShape, kOffsets };

  [[noreturn]] bool refuse_value(std::string_view what);
  [[noreturn]] void refuse(const std::string& what);
  void begin_field(const std::string& name);
  void finish_tensor();

  SafetensorsHeader& header_;
  const std::string& file_;
  Place place_ = Place::kOutside;
  Field field_ = Field::kNone;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false, has_metadata_ = false;
  TensorEntry tensor_;
  std::vector<uint64_t> offsets_;
  std::string metadata_key_;
};

}  // namespace yoke::checkpoint::format
