from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer

texts = ["cat dog cat bird", "dog cat fish", "bond stock bond price", "price stock market"] * 20
vectorizer = CountVectorizer()
X = vectorizer.fit_transform(texts)
model = LatentDirichletAllocation(2, learning_method="batch")  # instead: model = LatentDirichletAllocation(2, min_df=1)
mixtures = model.fit(X).transform(X)
words = vectorizer.get_feature_names_out()
for topic in model.components_:
    print([words[i] for i in topic.argsort()[::-1][:3]])
print(model.perplexity(X), model.score(X), model.doc_topic_prior_)
print(model.bound_)
assert mixtures.shape == (80, 2)
