#include "yoke/checkpoint/format/safetensors_sax.h"

#include "yoke/base/error.h"

namespace yoke::checkpoint::format {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

}  // namespace

void HeaderEvents::refuse(const std::string& what) {
  if (place_ == Place::kOutside || place_ == Place::kTop)
    throw ConfigError("{}: safetensors header: {}.", file_, what);
  throw ConfigError("{}: safetensors header, \"{}\": {}.", file_,
                    place_ == Place::kMetadata ? std::string(kMetadataKey) : tensor_.name, what);
}

bool HeaderEvents::refuse_value(std::string_view what) {
  switch (place_) {
    case Place::kMetadata:
      refuse(fmt::format("the value of \"{}\" is {}; metadata values must be strings", metadata_key_, what));
    case Place::kShape:
      refuse(fmt::format("{} in \"shape\", which takes integers below 2^63", what));
    case Place::kOffsets:
      refuse(fmt::format("{} in \"data_offsets\", which takes two integers below 2^63", what));
    case Place::kTensor:
      refuse(fmt::format("{} where \"{}\" was expected", what,
                         field_ == Field::kDtype ? "dtype: text" : "shape or data_offsets: list of numbers"));
    default:
      refuse(fmt::format("{} where a tensor's description was expected", what));
  }
}

bool HeaderEvents::number_integer(int64_t value) {
  refuse_value(fmt::format("the negative number {}", value));
}

bool HeaderEvents::number_float(double, const std::string& text) {
  refuse_value(fmt::format("the number {}", text.substr(0, 40)));
}

bool HeaderEvents::number_unsigned(uint64_t value) {
  if (place_ != Place::kShape && place_ != Place::kOffsets) refuse_value(fmt::format("the number {}", value));
  if (value > static_cast<uint64_t>(INT64_MAX)) refuse_value(fmt::format("the number {}", value));
  if (place_ == Place::kShape) {
    if (tensor_.shape.size() == kMaxDims) refuse(fmt::format("more than {} dimensions", kMaxDims));
    tensor_.shape.push_back(static_cast<int64_t>(value));
  } else {
    if (offsets_.size() == 2) refuse("\"data_offsets\" has more than two numbers");
    offsets_.push_back(value);
  }
  return true;
}

bool HeaderEvents::string(std::string& value) {
  if (place_ == Place::kMetadata) {
    header_.metadata[metadata_key_] = value;
    return true;
  }
  if (place_ != Place::kTensor || field_ != Field::kDtype) refuse_value("a text");
  auto dtype = parse_dtype(value);
  if (!dtype) {
    refuse(
        fmt::format("dtype \"{}\" is not supported. Accepted: {}", value.substr(0, 40), accepted_dtypes()));
  }
  tensor_.dtype = *dtype;
  return true;
}

bool HeaderEvents::start_object(size_t) {
  if (place_ == Place::kOutside) {
    place_ = Place::kTop;
  } else if (place_ == Place::kTop) {
    place_ = tensor_.name == kMetadataKey ? Place::kMetadata : Place::kTensor;
  } else {
    refuse_value("an object");
  }
  return true;
}

bool HeaderEvents::end_object() {
  if (place_ == Place::kTensor) finish_tensor();
  place_ = place_ == Place::kTop ? Place::kOutside : Place::kTop;
  return true;
}

bool HeaderEvents::start_array(size_t) {
  if (place_ != Place::kTensor || field_ == Field::kDtype) refuse_value("a list");
  place_ = field_ == Field::kShape ? Place::kShape : Place::kOffsets;
  return true;
}

bool HeaderEvents::end_array() {
  place_ = Place::kTensor;
  return true;
}

bool HeaderEvents::key(std::string& name) {
  if (name.size() > kMaxNameBytes)
    refuse(fmt::format("a name of {} bytes; at most {}", name.size(), kMaxNameBytes));
  if (place_ == Place::kTensor) {
    begin_field(name);
  } else if (place_ == Place::kMetadata) {
    metadata_key_ = name;
    if (header_.metadata.contains(name)) refuse(fmt::format("the key \"{}\" appears twice", name));
  } else {
    if (name == kMetadataKey) {
      if (has_metadata_) refuse(fmt::format("the key \"{}\" appears twice", name));
      has_metadata_ = true;
    }
    tensor_ = {};
    tensor_.name = name;
    offsets_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
  }
  return true;
}

void HeaderEvents::begin_field(const std::string& name) {
  bool* seen = nullptr;
  if (name == "dtype") {
    field_ = Field::kDtype;
    seen = &has_dtype_;
  } else if (name == "shape") {
    field_ = Field::kShape;
    seen = &has_shape_;
  } else if (name == "data_offsets") {
    field_ = Field::kOffsets;
    seen = &has_offsets_;
  } else {
    refuse(fmt::format("unknown key \"{}\". Accepted: dtype, shape, data_offsets", name));
  }
  if (*seen) refuse(fmt::format("the key \"{}\" appears twice", name));
  *seen = true;
}

void HeaderEvents::finish_tensor() {
  if (!has_dtype_) refuse("\"dtype\" is missing");
  if (!has_shape_) refuse("\"shape\" is missing");
  if (!has_offsets_) refuse("\"data_offsets\" is missing");
  if (offsets_.size() != 2) refuse("\"data_offsets\" needs two numbers, begin and end");
  tensor_.begin = offsets_[0];
  tensor_.end = offsets_[1];
  header_.tensors.push_back(std::move(tensor_));
}

bool HeaderEvents::parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
  throw ConfigError("{}: safetensors header is not valid JSON at byte {} of the file.", file_, 8 + position);
}

}  // namespace yoke::checkpoint::format
