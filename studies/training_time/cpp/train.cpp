// The small GPT of study A and its training loop, in C++ on libtorch.
//
//   train FOLDER DEVICE THREADS LEARNING_RATE WEIGHT_DECAY LAYERS HEADS WIDTH POSITIONS VOCABULARY BLOCK BATCH
//
// FOLDER has files that Python wrote, as raw arrays in native byte order: weights (float32, in the order of
// the module's named_parameters), tokens, batches, train, valid (int64; the last three are the indices of the
// first characters of windows). The program reads commands from standard input and answers each with a line:
//
//   run FIRST STEPS   ->  losses L1 L2 ...     (after the device has finished)
//   evaluate          ->  evaluation TRAIN VALID
//   quit
//
// The caller measures the time, as for the variants in Python.

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

using torch::Tensor;

namespace {

template <typename T>
Tensor read(const std::string& path, torch::ScalarType type) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(T));
  return torch::from_blob(const_cast<char*>(bytes.data()), {count}, type).clone();
}

struct Shape {
  int64_t layers, heads, width, positions, vocabulary;
};

struct Block {
  Tensor ln_1_weight, ln_1_bias, attn_weight, attn_bias, proj_weight, proj_bias;
  Tensor ln_2_weight, ln_2_bias, fc_weight, fc_bias, out_weight, out_bias;
};

// GPT-2: pre-norm, one projection to queries, keys and values, exact GELU, tied embeddings.
class Gpt {
 public:
  Gpt(const Tensor& weights, const Shape& shape, torch::Device device) : shape_(shape), device_(device) {
    const int64_t w = shape.width;
    int64_t at = 0;
    auto next = [&](std::vector<int64_t> sizes) {
      int64_t count = 1;
      for (auto size : sizes) count *= size;
      Tensor made = weights.slice(0, at, at + count).view(sizes).clone().to(device_);
      at += count;
      made.set_requires_grad(true);
      parameters.push_back(made);
      return made;
    };
    wte_ = next({shape.vocabulary, w});
    wpe_ = next({shape.positions, w});
    for (int64_t i = 0; i < shape.layers; ++i) {
      Block b;
      b.ln_1_weight = next({w});
      b.ln_1_bias = next({w});
      b.attn_weight = next({3 * w, w});
      b.attn_bias = next({3 * w});
      b.proj_weight = next({w, w});
      b.proj_bias = next({w});
      b.ln_2_weight = next({w});
      b.ln_2_bias = next({w});
      b.fc_weight = next({4 * w, w});
      b.fc_bias = next({4 * w});
      b.out_weight = next({w, 4 * w});
      b.out_bias = next({w});
      blocks_.push_back(b);
    }
    ln_f_weight_ = next({w});
    ln_f_bias_ = next({w});
    if (at != weights.numel()) throw std::runtime_error("the weights are of another model");
  }

  Tensor forward(const Tensor& tokens) {
    const auto batch = tokens.size(0), time = tokens.size(1), w = shape_.width;
    auto by_head = [&](const Tensor& x) {
      return x.view({batch, time, shape_.heads, w / shape_.heads}).transpose(1, 2);
    };
    const auto positions = torch::arange(time, torch::TensorOptions().dtype(torch::kLong).device(device_));
    Tensor x = torch::embedding(wte_, tokens) + torch::embedding(wpe_, positions);
    for (const auto& b : blocks_) {
      const auto qkv = torch::linear(torch::layer_norm(x, {w}, b.ln_1_weight, b.ln_1_bias), b.attn_weight, b.attn_bias)
                           .chunk(3, -1);
      Tensor y = torch::scaled_dot_product_attention(
          by_head(qkv[0]), by_head(qkv[1]), by_head(qkv[2]), {}, 0.0, /*is_causal=*/true);
      y = y.transpose(1, 2).reshape({batch, time, w});
      x = x + torch::linear(y, b.proj_weight, b.proj_bias);
      const auto wide = torch::linear(torch::layer_norm(x, {w}, b.ln_2_weight, b.ln_2_bias), b.fc_weight, b.fc_bias);
      x = x + torch::linear(torch::gelu(wide), b.out_weight, b.out_bias);
    }
    return torch::linear(torch::layer_norm(x, {w}, ln_f_weight_, ln_f_bias_), wte_);
  }

  std::vector<Tensor> parameters;

 private:
  Shape shape_;
  torch::Device device_;
  Tensor wte_, wpe_, ln_f_weight_, ln_f_bias_;
  std::vector<Block> blocks_;
};

int work(const std::vector<std::string>& given) {
  if (given.size() != 12) throw std::runtime_error("twelve arguments are needed");
  const std::string folder = given[0] + "/";
  const torch::Device device(given[1]);
  torch::set_num_threads(std::stoi(given[2]));
  const double rate = std::stod(given[3]), decay = std::stod(given[4]);
  const Shape shape{std::stoll(given[5]), std::stoll(given[6]), std::stoll(given[7]), std::stoll(given[8]),
                    std::stoll(given[9])};
  const int64_t block = std::stoll(given[10]), batch = std::stoll(given[11]);

  const auto tokens = read<int64_t>(folder + "tokens", torch::kLong);
  const auto batches = read<int64_t>(folder + "batches", torch::kLong).view({-1, batch});
  const auto train = read<int64_t>(folder + "train", torch::kLong);
  const auto valid = read<int64_t>(folder + "valid", torch::kLong);
  Gpt model(read<float>(folder + "weights", torch::kFloat), shape, device);
  torch::optim::AdamW optimizer(model.parameters, torch::optim::AdamWOptions(rate).weight_decay(decay));

  auto loss_of = [&](const Tensor& starts) {
    const auto found = tokens.index({starts.unsqueeze(1) + torch::arange(block + 1)});
    const auto inputs = found.slice(1, 0, block).contiguous().to(device);
    const auto targets = found.slice(1, 1, block + 1).contiguous().to(device);
    return torch::nn::functional::cross_entropy(model.forward(inputs).flatten(0, 1), targets.flatten());
  };

  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    char number[32];
    if (what == "run") {
      int64_t first = 0, steps = 0;
      words >> first >> steps;
      std::vector<Tensor> losses;
      for (int64_t step = first; step < first + steps; ++step) {
        optimizer.zero_grad();
        const auto loss = loss_of(batches[step]);
        loss.backward();
        optimizer.step();
        losses.push_back(loss.detach());
      }
      const auto together = torch::stack(losses).cpu().to(torch::kFloat);  // waits for the device
      std::cout << "losses";
      for (int64_t i = 0; i < steps; ++i) {
        std::snprintf(number, sizeof number, " %.9g", together[i].item<float>());
        std::cout << number;
      }
      std::cout << std::endl;
    } else if (what == "evaluate") {
      torch::NoGradGuard no_grad;
      std::cout << "evaluation";
      for (const auto& starts : {train, valid}) {
        std::snprintf(number, sizeof number, " %.9g", loss_of(starts).item<float>());
        std::cout << number;
      }
      std::cout << std::endl;
    } else if (what == "quit") {
      break;
    } else {
      throw std::runtime_error("unknown request: " + line);
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return work(std::vector<std::string>(words + 1, words + count));
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
