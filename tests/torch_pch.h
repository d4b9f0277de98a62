// Precompiled for the unit tests with LibTorch.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/torch_pch.h"
