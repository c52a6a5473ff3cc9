"""The same three ratings in the formats of public data sets."""

import json

EXPECTED = {("10", "7"): 5.0, ("10", "3"): 3.5, ("2", "7"): 1.0}
AMAZON = [
    {
        "reviewerID": "10",
        "asin": "7",
        "reviewerName": "J",
        "helpful": [0, 0],
        "overall": 5.0,
        "unixReviewTime": 1252800000,
    },
    {"reviewerID": "10", "asin": "3", "helpful": [0, 1], "overall": 3.5, "unixReviewTime": 1252800001},
    {
        "reviewerID": "2",
        "asin": "7",
        "reviewerName": "K",
        "helpful": [0, 0],
        "overall": 1.0,
        "unixReviewTime": 1252800002,
    },
]
YELP = [
    {
        "review_id": f"r{row}",
        "user_id": user,
        "business_id": item,
        "stars": stars,
        "useful": 0,
        "text": "t",
        "date": "d",
    }
    for row, ((user, item), stars) in enumerate(EXPECTED.items())
]


def make_lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


# name, content, and the description of the columns
FILES = {
    "MovieLens csv": (
        "ratings.csv",
        "userId,movieId,rating,timestamp\n10,7,5.0,978300760\n10,3,3.5,978302109\n2,7,1.0,978301968\n",
        'users from "userId", items from "movieId", ratings from "rating"; left out: "timestamp"',
    ),
    "MovieLens dat": (
        "ratings.dat",
        "10::7::5::978300760\n10::3::3.5::978302109\n2::7::1::978301968\n",
        "no header; users from column 0, items from column 1, ratings from column 2; left out: column 3",
    ),
    "MovieLens u.data": (
        "u.data",
        "10\t7\t5\t881250949\n10\t3\t3.5\t891717742\n2\t7\t1\t878887116\n",
        "no header; users from column 0, items from column 1, ratings from column 2; left out: column 3",
    ),
    "Amazon reviews": (
        "reviews_Beauty_5.json",
        make_lines(AMAZON),
        'users from "reviewerID", items from "asin", ratings from "overall"; '
        'left out: "reviewerName", "helpful", "unixReviewTime"',
    ),
    "Amazon csv": (
        "Beauty.csv",
        "user_id,parent_asin,rating,timestamp\n10,7,5.0,1588687728923\n10,3,3.5,1588687728924\n2,7,1.0,1588687728925\n",
        'users from "user_id", items from "parent_asin", ratings from "rating"; left out: "timestamp"',
    ),
    "Goodreads": (
        "goodreads_interactions.csv",
        "user_id,book_id,is_read,rating,is_reviewed\n10,7,1,5,0\n10,3,1,3.5,0\n2,7,1,1,0\n",
        'users from "user_id", items from "book_id", ratings from "rating"; left out: "is_read", "is_reviewed"',
    ),
    "Book-Crossing": (
        "BX-Book-Ratings.csv",
        '"User-ID";"ISBN";"Book-Rating"\n"10";"7";"5"\n"10";"3";"3.5"\n"2";"7";"1"\n',
        'users from "User-ID", items from "ISBN", ratings from "Book-Rating"',
    ),
    "Last.fm": (
        "user_artists.dat",
        "userID\tartistID\tweight\n10\t7\t5\n10\t3\t3.5\n2\t7\t1\n",
        'users from "userID", items from "artistID", ratings from "weight"',
    ),
    "Yelp": (
        "yelp_academic_dataset_review.json",
        make_lines(YELP),
        'users from "user_id", items from "business_id", ratings from "stars"; '
        'left out: "review_id", "useful", "text", "date"',
    ),
    "Steam with a header": (
        "steam-200k.csv",
        "user-id,game-title,behavior-name,value,0_\n10,7,play,5.0,0\n10,3,play,3.5,0\n2,7,play,1.0,0\n",
        'users from "user-id", items from "game-title", ratings from "value"; left out: "behavior-name", "0_"',
    ),
    "RecBole": (
        "ml-100k.inter",
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n10\t7\t5\t1\n10\t3\t3.5\t2\n2\t7\t1\t3\n",
        'users from "user_id:token", items from "item_id:token", ratings from "rating:float"; left out: "timestamp:float"',
    ),
    "ratings last": (
        "mine.csv",
        "user_id,item_id,timestamp,rating\n10,7,978300760,5\n10,3,978302109,3.5\n2,7,978301968,1\n",
        'users from "user_id", items from "item_id", ratings from "rating"; left out: "timestamp"',
    ),
    "items first": (
        "mine.txt",
        "Item ID,USER_ID,Stars\n7,10,5\n3,10,3.5\n7,2,1\n",
        'users from "USER_ID", items from "Item ID", ratings from "Stars"',
    ),
    "an index column of pandas": (
        "mine.csv",
        ",customer,product,score\n0,10,7,5\n1,10,3,3.5\n2,2,7,1\n",
        'users from "customer", items from "product", ratings from "score"; left out: ""',
    ),
    "a rating of another name": (
        "mine.csv",
        "item,points,user\n7,5,10\n3,3.5,10\n7,1,2\n",
        'users from "user", items from "item", ratings from "points"',
    ),
    "decimal points, semicolons": (
        "mine.csv",
        "10;7;5\n10;3;3.5\n2;7;1\n",
        "no header; users from column 0, items from column 1, ratings from column 2",
    ),
    "a JSON list": (
        "mine.json",
        json.dumps(YELP, indent=1),
        'users from "user_id", items from "business_id", ratings from "stars"; '
        'left out: "review_id", "useful", "text", "date"',
    ),
}
