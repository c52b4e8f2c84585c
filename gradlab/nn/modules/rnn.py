"""Recurrent layers and cells, under the name of PyTorch's file."""

from gradlab.nn.modules.cells import GRUCell as GRUCell, LSTMCell as LSTMCell, RNNCell as RNNCell, RNNCellBase as RNNCellBase
from gradlab.nn.modules.recurrent import GRU as GRU, LSTM as LSTM, RNN as RNN, RNNBase as RNNBase
